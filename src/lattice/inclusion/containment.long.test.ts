import { expect, it } from "vitest";
import { checkSuite, hasSuite, suiteGroups } from "../fixtures/containment.js";

it.skipIf(!hasSuite)("the public containment suite, draft-07, whole: no false yes, no false no", () => {
  const { right, unknown, mislabelled, wrong } = checkSuite(1);
  console.log(`right ${right}, unknown ${unknown}, mislabelled in the suite ${mislabelled}, wrong ${wrong.length}`);
  expect(wrong).toEqual([]);
  expect(right + unknown + mislabelled).toBe(2_096);
  expect(right).toBeGreaterThanOrEqual(2_079);
});

/** A checkout of github.com/sdbs-uni-p/json-schema-containment-testsuite; without one this part is skipped. */
const CHECKOUT = process.env.LATTICE_SUITE;

it.skipIf(CHECKOUT === undefined)("the public containment suite, 2020-12, whole: no false yes, no false no", () => {
  const groups = suiteGroups(CHECKOUT as string, "draft2020-12");
  const { right, unknown, mislabelled, wrong } = checkSuite(1, "2020-12", groups);
  console.log(`right ${right}, unknown ${unknown}, mislabelled in the suite ${mislabelled}, wrong ${wrong.length}`);
  expect(wrong).toEqual([]);
  expect(right + unknown + mislabelled).toBe(2_813);
  expect(right).toBeGreaterThanOrEqual(2_760);
});
