// The stricter of two policies: in force while a change of policy is not on record yet.

import { createHash } from "node:crypto";
import { joinObligations } from "./obligations.js";
import type { Outlook, OutlookRequest, PolicyDecision, PolicyRequest, PolicySet } from "./types.js";

const STRICTNESS = { permit: 0, challenge: 1, deny: 2 } as const;
const OUTLOOKS: readonly Outlook[] = ["never", "challenge", "possible"];

/**
 * `stricterOf` answers every request with the stricter of two answers: deny before challenge before permit, and the
 * obligations and the checks of both. Its hash names both sets, so that a record tells it from either of them.
 */
export function stricterOf(before: PolicySet, after: PolicySet): PolicySet {
  const decide = (request: PolicyRequest): PolicyDecision => decideBoth(before, after, request);
  return {
    hash: createHash("sha256").update(`stricter of\n${before.hash}\n${after.hash}`).digest("hex"),
    rules: after.rules,
    warnings: after.warnings,
    usesWasmFallbackFor: [...new Set([...before.usesWasmFallbackFor, ...after.usesWasmFallbackFor])],
    checks: [...(before.checks ?? []), ...(after.checks ?? [])],
    decide,
    explain: (request) => ({
      decision: decide(request),
      rules: [...before.explain(request).rules, ...after.explain(request).rules],
    }),
    outlook: (request: OutlookRequest) => {
      const least = Math.min(...[before, after].map((policy) => OUTLOOKS.indexOf(policy.outlook(request))));
      return OUTLOOKS[least] as Outlook;
    },
  };
}

function decideBoth(before: PolicySet, after: PolicySet, request: PolicyRequest): PolicyDecision {
  const { approvedRules = [], ...unapproved } = request;
  const answers = [before.decide(unapproved), after.decide(unapproved)] as const;
  const asked = answers.filter(({ effect }) => effect === "challenge");
  const ids = new Set(asked.flatMap(({ rules }) => rules.map(({ id }) => id)));
  // An approval counts for exactly the rules it showed: those of both sets together.
  const isApproved =
    ids.size > 0 && ids.size === new Set(approvedRules).size && approvedRules.every((id) => ids.has(id));
  if (!isApproved) return meet(...answers);
  const again = ([before, after] as const).map((policy, i) => {
    const answer = answers[i] as PolicyDecision;
    if (answer.effect !== "challenge") return answer;
    return policy.decide({ ...unapproved, approvedRules: answer.rules.map(({ id }) => id) });
  });
  return meet(again[0] as PolicyDecision, again[1] as PolicyDecision);
}

function meet(a: PolicyDecision, b: PolicyDecision): PolicyDecision {
  if (a.effect !== b.effect) return STRICTNESS[a.effect] > STRICTNESS[b.effect] ? a : b;
  if (a.effect === "deny") return b;
  if (a.effect === "permit") return { ...b, obligations: joinObligations([a.obligations, b.obligations]) };
  const known = new Set(b.rules.map(({ id }) => id));
  const approvers = commonApprovers(a.approvers, b.approvers);
  if (!approvers) return { ...b, effect: "deny", reason: NO_COMMON_APPROVER };
  return { ...b, rules: [...b.rules, ...a.rules.filter(({ id }) => !known.has(id))], approvers };
}

const NO_COMMON_APPROVER =
  "the policy is changing, and the approvers before and after the change have no group in common; try again";

/** An empty list is every approver; undefined where the lists have no group in common. */
function commonApprovers(a: readonly string[], b: readonly string[]): string[] | undefined {
  if (a.length === 0 || b.length === 0) return [...a, ...b];
  const common = b.filter((group) => a.includes(group));
  return common.length === 0 ? undefined : common;
}
