import { describe, it } from "vitest";
import { agreesWithAjv } from "./ajv.contract.js";

describe.each(["draft-07", "2020-12"] as const)("random schemas, %s", (dialect) => {
  it("are judged as ajv judges them", () => agreesWithAjv(dialect, 300));
});
