import { describe, expect, it } from "vitest";
import { powerTrial } from "./fixtures/power-trial.js";

const TRIALS = Number(process.env.POWER_TRIALS ?? 2_000);

describe("power cuts in great number", () => {
  it(`power cuts in great number lose no acknowledged record in ${TRIALS} trials of three cuts each`, async () => {
    const wrong: string[] = [];
    for (let seed = 0; seed < TRIALS; seed++) {
      const found = await powerTrial(1_000_000 + seed);
      if (found !== undefined) wrong.push(`seed ${1_000_000 + seed}: ${found}`);
    }
    expect(wrong).toEqual([]);
  });
});
