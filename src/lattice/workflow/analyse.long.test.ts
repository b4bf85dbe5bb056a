import fc from "fast-check";
import { expect, it } from "vitest";
import { checkNarrowings, checkWorkflows, loadChecker } from "../fixtures/check-workflows.js";
import { CALLS, doubling, fileOf } from "../fixtures/narrowings.js";

const COUNT = Number(process.env.LATTICE_WORKFLOWS ?? 10_000);
const SEED = Number(process.env.LATTICE_SEED ?? Math.floor(Math.random() * 2 ** 31));

it(`analysis equals brute force on ${COUNT} generated workflows`, async () => {
  const done = checkWorkflows(COUNT, await loadChecker(), SEED);
  console.log(`seed ${SEED}: ${done.workflows} workflows, ${done.violations} violations`);
  expect(done.violations).toBeGreaterThan(COUNT);
});

const NARROWED = Number(process.env.LATTICE_NARROWED ?? (process.env.CI ? 40 : 200));

it(`analysis tells the truth about ${NARROWED} workflows with up to sixty narrowings of one tool`, async () => {
  const done = checkNarrowings(NARROWED, await loadChecker());
  console.log(`${done.exact} of them decided exactly, ${done.proved} violations proved`);
  expect(done.exact).toBe(NARROWED);
  expect(done.proved).toBeGreaterThan(NARROWED);
});

it("past its bounds it proves nothing that is not true and misses nothing that is", async () => {
  const files = fc
    .record({
      steps: fc.integer({ min: 10, max: 12 }),
      limits: fc.array(fc.subarray(CALLS, { minLength: 4, maxLength: 7 }), { minLength: 60, maxLength: 60 }),
    })
    .map(({ steps, limits }) => fileOf(doubling(steps), limits, (agent) => limits[agent % 7]));
  const done = checkNarrowings(4, await loadChecker(), files);
  expect(done.exact).toBeLessThan(4);
});
