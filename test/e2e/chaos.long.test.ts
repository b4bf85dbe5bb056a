import { expect, it } from "vitest";
import { runChaos } from "./chaos.js";

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const SECONDS = Number(process.env.CHAOS_FAULT_SECONDS ?? 1_800);

it(`survives ${SECONDS} s of faults in random order: every acknowledged call ran once and is on record once`, async () => {
  console.log(`chaos with seed ${SEED}`);
  const report = await runChaos({ seed: SEED, seconds: SECONDS });
  console.log(JSON.stringify(report));
  expect(report.problems.slice(0, 20)).toEqual([]);
  expect(report.acknowledged).toBeGreaterThan(SECONDS);
  expect(report.approved).toBeGreaterThan(0);
});
