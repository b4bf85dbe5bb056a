// What another policy would change: which rules came, went or were rewritten, and which decisions turn out otherwise.

import type { PolicyDecision, PolicyRequest, PolicyRule, PolicySet, PolicyText } from "./types.js";

export interface RuleChange {
  readonly id: string;
  readonly before: PolicyText;
  readonly after: PolicyText;
}

export interface DecisionChange {
  readonly request: PolicyRequest;
  readonly before: PolicyDecision;
  readonly after: PolicyDecision;
}

export interface PolicyDiff {
  readonly added: PolicyRule[];
  readonly removed: PolicyRule[];
  readonly changed: RuleChange[];
  /** Those whose effect, approvers or obligations differ; another rule for the same answer is no change. */
  readonly decisions: DecisionChange[];
  readonly compared: number;
}

export function diffPolicies(before: PolicySet, after: PolicySet, requests: Iterable<PolicyRequest>): PolicyDiff {
  const old = new Map(before.rules.map((rule) => [rule.id, rule]));
  const now = new Map(after.rules.map((rule) => [rule.id, rule]));
  const changed: RuleChange[] = [];
  for (const [id, rule] of now) {
    const was = old.get(id);
    if (was && was.digest !== rule.digest) changed.push({ id, before: was, after: rule });
  }
  const decisions: DecisionChange[] = [];
  let compared = 0;
  for (const request of requests) {
    compared++;
    const was = before.decide(request);
    const is = after.decide(request);
    if (outcomeOf(was) !== outcomeOf(is)) decisions.push({ request, before: was, after: is });
  }
  return {
    added: after.rules.filter((rule) => !old.has(rule.id)).map(place),
    removed: before.rules.filter((rule) => !now.has(rule.id)).map(place),
    changed,
    decisions,
    compared,
  };
}

function outcomeOf({ effect, approvers, obligations }: PolicyDecision): string {
  return JSON.stringify([effect, [...approvers].sort(), obligations.map((each) => JSON.stringify(each)).sort()]);
}

function place({ id, file, line }: PolicyRule): PolicyRule {
  return { id, file, line };
}
