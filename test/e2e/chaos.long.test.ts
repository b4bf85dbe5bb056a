import { expect, it } from "vitest";
import { type FaultName, runChaos } from "./chaos.js";

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const [STORE, WORKERS] = [process.env.CHAOS_STORE as "sqlite" | undefined, Number(process.env.CHAOS_WORKERS ?? 1)];
const SECONDS = Number(process.env.CHAOS_FAULT_SECONDS ?? 1_800);

it(`a gateway of three replicas survives ${SECONDS} s of faults in random order: every acknowledged call ran once and is on record once`, async () => {
  console.log(`chaos with seed ${SEED}`);
  const report = await runChaos({ seed: SEED, seconds: SECONDS, store: STORE, workers: WORKERS });
  console.log(JSON.stringify(report));
  expect(report.problems.slice(0, 20)).toEqual([]);
  expect(report.acknowledged).toBeGreaterThan(SECONDS);
  expect(report.approved).toBeGreaterThan(0);
});

/** What differs with a file as the store and with several processes for each replica. */
const OF_FILES: FaultName[] = ["kill", "stop", "full disk", "store restored"];

it("a gateway of three replicas with two workers each survives faults on SQLite: every acknowledged call ran once and is on record once", async () => {
  console.log(`chaos with seed ${SEED}`);
  const report = await runChaos({ seed: SEED, seconds: 0, pauseMs: 60, store: "sqlite", workers: 2, faults: OF_FILES });
  console.log(JSON.stringify(report));
  expect(report.problems.slice(0, 20)).toEqual([]);
  expect(report.faults.length).toBe(OF_FILES.length);
  expect(report.acknowledged).toBeGreaterThan(50);
});
