import { expect, it } from "vitest";
import { chosenFaults, faultsOfEachKind, runChaos } from "./chaos.js";

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);

it("a gateway of three replicas survives a fault of each kind: every acknowledged call ran once and is on record once, and readiness is true [U7]", {
  timeout: 900_000,
}, async () => {
  const faults = chosenFaults(faultsOfEachKind(SEED));
  console.log(`chaos with seed ${SEED}`);
  const report = await runChaos({ seed: SEED, seconds: 0, pauseMs: 60, faults });
  console.log(JSON.stringify(report));
  expect(report.problems.slice(0, 20)).toEqual([]);
  expect(report.faults.length + report.skipped.length).toBe(faults.length);
  expect(report.acknowledged).toBeGreaterThan(50);
  expect(report.approved).toBeGreaterThan(0);
  expect(report.denied).toBeGreaterThan(10);
});
