// For tests alone: closures against Cedar, on generated pairs of a policy set and a request.

import { authorize } from "./authorize.js";
import { Catalog } from "./catalog.js";
import { Random, PolicyWriter, randomRequest, WORLD_TOOLS } from "./generate.js";
import { LoadedPolicy, readSources } from "./load.js";
import { askOracle } from "./oracle.js";

export interface AgreementCounts {
  pairs: number;
  allows: number;
  denies: number;
  withErrors: number;
  withReasons: number;
  byCedar: number;
  withoutPositions: number;
}

const REQUESTS_PER_SET = 4;

/** Throws at the first pair on which the two differ, with everything needed to look at it. */
export function compareWithCedar(pairs: number, seed: number): AgreementCounts {
  const counts: AgreementCounts = {
    pairs: 0,
    allows: 0,
    denies: 0,
    withErrors: 0,
    withReasons: 0,
    byCedar: 0,
    withoutPositions: 0,
  };
  const catalog = new Catalog(WORLD_TOOLS);
  for (let set = 0; counts.pairs < pairs; set++) {
    const random = new Random(seed + set);
    const writer = new PolicyWriter(random);
    const texts = Array.from({ length: 1 + random.below(5) }, () => writer.policy());
    const { drafts, problems } = readSources([{ file: "generated.cedar", text: texts.join("\n") }]);
    if (problems.length > 0) throw new Error(`seed ${seed + set}: ${JSON.stringify(problems)}\n${texts.join("\n")}`);
    const policy = new LoadedPolicy(drafts, catalog);
    counts.byCedar += policy.usesWasmFallbackFor.length;
    counts.withoutPositions += drafts.filter((draft) => !draft.tree?.principal.span).length;
    const named = Object.fromEntries(drafts.map((draft) => [draft.id, draft.text]));
    for (let each = 0; each < REQUESTS_PER_SET && counts.pairs < pairs; each++) {
      comparePair(policy, named, random, counts, `seed ${seed + set}, request ${each}`);
    }
  }
  return counts;
}

function comparePair(
  policy: LoadedPolicy,
  named: Readonly<Record<string, string>>,
  random: Random,
  counts: AgreementCounts,
  which: string,
): void {
  const request = randomRequest(random);
  const prepared = policy.prepare(request);
  if (typeof prepared === "string") throw new Error(`${which}: ${prepared}`);
  prepared.frame.approved = random.chance(0.5);
  const { permits, forbids, errors } = authorize(prepared.lists, prepared.frame);
  const allow = permits.length > 0 && forbids.length === 0;
  const deciding = forbids.length > 0 ? forbids : permits;
  const ours = {
    allow,
    reasons: deciding.map((rule) => rule.id).sort(),
    errors: errors.map(({ rule }) => rule.id).sort(),
  };
  const tools = WORLD_TOOLS.map((tool) => tool.name);
  const theirs = askOracle(named, prepared.frame, tools);
  if (JSON.stringify(ours) !== JSON.stringify(theirs)) {
    const texts = Object.entries(named).map(([id, text]) => `${id}: ${text}`);
    const messages = errors.map(({ rule, message }) => `${rule.id}: ${message}`);
    throw new Error(
      [
        `${which}: closures and Cedar differ`,
        JSON.stringify(ours),
        JSON.stringify(theirs),
        ...texts,
        ...messages,
        JSON.stringify(request),
      ].join("\n"),
    );
  }
  counts.pairs++;
  counts[allow ? "allows" : "denies"]++;
  if (errors.length > 0) counts.withErrors++;
  if (deciding.length > 0) counts.withReasons++;
}
