import { expect, test } from "vitest";
import { compareWithCedar } from "./fixtures/agreement.js";

test("closures and Cedar agree on at least ten thousand generated pairs", () => {
  const pairs = Number(process.env.POLICY_PAIRS ?? 20_000);
  const counts = compareWithCedar(pairs, Number(process.env.SEED ?? 1_000_000));
  console.log(JSON.stringify(counts));
  expect(counts.pairs).toBe(pairs);
  expect(counts.allows).toBeGreaterThan(pairs / 8);
  expect(counts.denies).toBeGreaterThan(pairs / 3);
  expect(counts.withErrors).toBeGreaterThan(pairs / 8);
  expect(counts.withoutPositions).toBe(0);
  expect(counts.byCedar).toBe(0);
});
