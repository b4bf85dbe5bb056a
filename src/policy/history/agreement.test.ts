import { expect, test } from "vitest";
import { compareOnce } from "./fixtures/agreement.js";

test("agrees with the definition of every condition over past events, also after a restart from a snapshot", () => {
  const counts = { compared: 0, refused: 0, held: 0 };
  for (let seed = 0; seed < 150; seed++) {
    const result = compareOnce(seed, 14);
    expect(result.disagrees, `seed ${seed}: ${result.condition}`).toBeUndefined();
    if (result.refused === undefined) counts.compared++;
    else counts.refused++;
    if (result.held > 0) counts.held++;
  }
  // Neither refused nor always false: the comparison is about something.
  expect(counts.compared).toBeGreaterThan(90);
  expect(counts.held).toBeGreaterThan(30);
});
