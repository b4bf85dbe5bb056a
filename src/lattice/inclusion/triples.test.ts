import { describe, expect, it } from "vitest";
import type { Dialect } from "../../schema/documents/index.js";
import { checkTriples } from "../fixtures/triples.js";

describe("inclusion on generated schemas", () => {
  it.each(["draft-07", "2020-12"] as Dialect[])("%s: no yes and no no is contradicted by a validator", (dialect) => {
    const answers = checkTriples(dialect, { pairs: 60, valuesPerPair: 4, seed: 20_260_728 });
    expect(answers.contradictions).toEqual([]);
    // The generator must reach both sides for the check to mean something.
    expect(answers.yes).toBeGreaterThan(30);
    expect(answers.no).toBeGreaterThan(5);
    expect(answers.unknown).toBeLessThan(5);
  });
});
