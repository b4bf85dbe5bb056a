import { describe, expect, it } from "vitest";
import type { Dialect } from "../../schema/documents/index.js";
import { checkTriples } from "../fixtures/triples.js";

const TRIPLES = Number(process.env.LATTICE_TRIPLES ?? 100_000);
const SEED = Number(process.env.LATTICE_SEED ?? Math.floor(Math.random() * 2 ** 31));

describe("inclusion on many generated schemas", () => {
  it.each(["draft-07", "2020-12"] as Dialect[])("%s: no answer is contradicted by a validator", (dialect) => {
    const pairs = Math.ceil(TRIPLES / 2 / 4);
    const answers = checkTriples(dialect, { pairs, valuesPerPair: 4, seed: SEED });
    console.log(
      `${dialect}: seed ${SEED}, ${pairs * 4} triples, yes ${answers.yes}, no ${answers.no}, unknown ${answers.unknown}`,
    );
    expect(answers.contradictions).toEqual([]);
    expect(answers.unknown / pairs).toBeLessThan(0.02);
  });
});
