import { expect, it } from "vitest";
import { checkWorkflows, loadChecker } from "../fixtures/check-workflows.js";

const COUNT = Number(process.env.LATTICE_WORKFLOWS ?? 10_000);
const SEED = Number(process.env.LATTICE_SEED ?? Math.floor(Math.random() * 2 ** 31));

it(`analysis equals brute force on ${COUNT} generated workflows`, async () => {
  const done = checkWorkflows(COUNT, await loadChecker(), SEED);
  console.log(`seed ${SEED}: ${done.workflows} workflows, ${done.violations} violations`);
  expect(done.violations).toBeGreaterThan(COUNT);
});
