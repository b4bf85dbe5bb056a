import { expect, test } from "vitest";
import { compareWithCedar } from "./agreement.js";

test("closures and Cedar agree on decision, deciding rules and erroring rules", () => {
  const counts = compareWithCedar(Number(process.env.CASES ?? 2000), Number(process.env.SEED ?? 1));
  console.log(JSON.stringify(counts));
  // A sample in which nothing happens would prove nothing.
  expect(counts.allows).toBeGreaterThan(counts.pairs / 10);
  expect(counts.denies).toBeGreaterThan(counts.pairs / 10);
  expect(counts.withErrors).toBeGreaterThan(counts.pairs / 10);
  expect(counts.withReasons).toBeGreaterThan(counts.pairs / 4);
  expect(counts.withoutPositions).toBe(0);
  expect(counts.byCedar).toBe(0);
});
