import { expect, test } from "vitest";
import { type Corpus, type CorpusCase, readCorpus, refusalOf, verdictsOf } from "./fixtures/corpus.js";
import { disagreements, NOT_REFUSED } from "./fixtures/corpus-results.js";

/** A part of the corpus for every run; the long tests take the whole. */
const EVERY = 60;

test("gives the recorded verdicts of a part of Dogwood's corpus, and refuses what it says to refuse", () => {
  const corpus: Corpus = readCorpus();
  const cases = corpus.cases.filter((_, index) => index % EVERY === 0);
  expect(disagreements(cases, (each: CorpusCase, log: string) => verdictsOf(corpus, each, log))).toEqual([]);
  const failures = corpus.failures.filter((_, index) => index % EVERY === 0);
  expect(failures.filter((each) => refusalOf(corpus, each) === undefined && !NOT_REFUSED.has(each.name))).toEqual([]);
  console.log(`${cases.length} cases and ${failures.length} refusals of Dogwood's corpus agree`);
});
