import { expect, test } from "vitest";
import { compareOnce } from "./fixtures/agreement.js";
import { readCorpus, refusalOf, verdictsOf } from "./fixtures/corpus.js";
import { disagreements, NOT_REFUSED, REFUSED } from "./fixtures/corpus-results.js";

test("gives the recorded verdict of every case of Dogwood's corpus but those listed", () => {
  const corpus = readCorpus();
  expect(disagreements(corpus.cases, (each, log) => verdictsOf(corpus, each, log))).toEqual([]);
  const traces = corpus.cases.filter(({ name }) => !REFUSED.has(name)).flatMap((each) => each.traces).length;
  console.log(`${corpus.cases.length - REFUSED.size} of ${corpus.cases.length} cases agree, with ${traces} traces`);
});

test("refuses every policy that Dogwood's corpus says to refuse but the one listed, and those it cannot bound", () => {
  const corpus = readCorpus();
  const accepted = corpus.failures.filter((each) => refusalOf(corpus, each) === undefined).map(({ name }) => name);
  expect(accepted).toEqual([...NOT_REFUSED]);
  const unbounded = corpus.cases.filter(({ name }) => REFUSED.has(name));
  expect(unbounded.filter((each) => refusalOf(corpus, each) === undefined)).toEqual([]);
  console.log(`${corpus.failures.length - accepted.length} policies are refused`);
});

test("agrees with the definition of 20,000 random conditions over past events", () => {
  for (let seed = 1_000_000; seed < 1_020_000; seed++) {
    const { condition, disagrees } = compareOnce(seed, 16);
    expect(disagrees, `seed ${seed}: ${condition}`).toBeUndefined();
  }
});
