import { describe, it } from "vitest";
import { agreesWithAjv } from "./ajv.contract.js";

const cases = Number(process.env.SCHEMA_CASES ?? 20_000);

describe.each(["draft-07", "2020-12"] as const)("random schemas, %s", (dialect) => {
  it(`${cases} of them are judged as ajv judges them`, () => agreesWithAjv(dialect, cases));
});
