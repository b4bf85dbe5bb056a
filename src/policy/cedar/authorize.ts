// Cedar's semantics over a slice (any satisfied forbid wins, then any satisfied permit), and the decision on top of them:
// an error anywhere denies, a deny that only challenges cause is a challenge, and an approval counts for exactly the set
// of rules that it showed.

import { joinObligations } from "./annotations.js";
import type { Frame } from "./frame.js";
import type { CedarRule } from "./rule.js";
import type { PolicyDecision, PolicyRule } from "./types.js";

interface RuleError {
  readonly rule: CedarRule;
  readonly message: string;
}

export interface Authorization {
  readonly permits: CedarRule[];
  readonly forbids: CedarRule[];
  readonly errors: RuleError[];
}

export function authorize(lists: readonly (readonly CedarRule[])[], frame: Frame): Authorization {
  const permits: CedarRule[] = [];
  const forbids: CedarRule[] = [];
  const errors: RuleError[] = [];
  for (const rules of lists) {
    for (const rule of rules) {
      try {
        if (rule.test(frame)) (rule.effect === "permit" ? permits : forbids).push(rule);
      } catch (error) {
        // Errors other than EvaluationError too: in either case this rule has not been evaluated.
        errors.push({ rule, message: error instanceof Error ? error.message : String(error) });
      }
    }
  }
  return { permits, forbids, errors };
}

const NOTHING_PERMITS = "no policy permits this";

export function decideFrame(
  lists: readonly (readonly CedarRule[])[],
  frame: Frame,
  approvedRules: readonly string[] = [],
): PolicyDecision {
  const first = authorize(lists, frame);
  if (first.errors.length > 0) return denyForErrors(first.errors);
  if (first.forbids.length === 0) return first.permits.length > 0 ? permit(first.permits) : denyBy([]);
  return decideForbidden(first, frame, approvedRules);
}

function decideForbidden(first: Authorization, frame: Frame, approvedRules: readonly string[]): PolicyDecision {
  const pending = first.forbids.filter((rule) => rule.meta.challenge);
  const firm = first.forbids.filter((rule) => !rule.meta.challenge);
  if (pending.length === 0) return denyBy(firm);
  // Only challenges read `context.approved`, so only they can turn out otherwise.
  frame.approved = true;
  const asApproved = authorize([pending], frame);
  frame.approved = false;
  if (asApproved.errors.length > 0) return denyForErrors(asApproved.errors);
  firm.push(...asApproved.forbids);
  if (firm.length > 0 || first.permits.length === 0) return denyBy(firm);
  return isExactly(pending, approvedRules) ? permit(first.permits) : challenge(pending);
}

function isExactly(rules: readonly CedarRule[], approvedRules: readonly string[]): boolean {
  const approved = new Set(approvedRules);
  return approved.size === rules.length && rules.every((rule) => approved.has(rule.id));
}

/** Most calls are permitted by one rule, and then everything about the answer is the same each time. */
const byOneRule = new WeakMap<CedarRule, PolicyDecision>();

function permit(rules: readonly CedarRule[]): PolicyDecision {
  const [only] = rules;
  if (only === undefined || rules.length > 1) return permitBy(rules);
  let decision = byOneRule.get(only);
  if (decision === undefined) {
    decision = permitBy(rules);
    for (const list of [decision, decision.rules, decision.obligations, decision.approvers, decision.errors]) {
      Object.freeze(list);
    }
    byOneRule.set(only, decision);
  }
  return decision;
}

function permitBy(rules: readonly CedarRule[]): PolicyDecision {
  return {
    effect: "permit",
    rules: rules.map(publicRule),
    reason: reasonOf(rules, "permitted by"),
    approvers: [],
    obligations: joinObligations(rules.map((rule) => rule.meta.obligations)),
    errors: [],
  };
}

function challenge(rules: readonly CedarRule[]): PolicyDecision {
  const said = rules.some((rule) => rule.meta.reason !== undefined);
  return {
    effect: "challenge",
    rules: rules.map(publicRule),
    reason: said ? reasonOf(rules, "approval required by") : "this action requires approval",
    approvers: [...new Set(rules.flatMap((rule) => rule.meta.approvers))],
    obligations: [],
    errors: [],
  };
}

function denyBy(rules: readonly CedarRule[]): PolicyDecision {
  const reason = rules.length === 0 ? NOTHING_PERMITS : reasonOf(rules, "forbidden by");
  return { effect: "deny", rules: rules.map(publicRule), reason, approvers: [], obligations: [], errors: [] };
}

function denyForErrors(errors: readonly RuleError[]): PolicyDecision {
  return {
    effect: "deny",
    rules: errors.map(({ rule }) => publicRule(rule)),
    reason: `policy could not be decided, so it is denied: ${[...new Set(errors.map((error) => error.message))].join("; ")}`,
    approvers: [],
    obligations: [],
    errors: errors.map(({ rule, message }) => `${rule.id} (${rule.file}:${rule.line}): ${message}`),
  };
}

/** A deny that no rule made: the request itself cannot be decided. */
export function denyRequest(message: string): PolicyDecision {
  return { effect: "deny", rules: [], reason: message, approvers: [], obligations: [], errors: [message] };
}

function reasonOf(rules: readonly CedarRule[], otherwise: string): string {
  const said = rules.flatMap((rule) => rule.meta.reason ?? []);
  return said.length > 0 ? [...new Set(said)].join("; ") : `${otherwise} ${rules.map((rule) => rule.id).join(", ")}`;
}

function publicRule({ id, file, line }: CedarRule): PolicyRule {
  return { id, file, line };
}
