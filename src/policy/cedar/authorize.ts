// Cedar's own semantics over a slice: any satisfied forbid wins, then any satisfied permit, and a rule that errors
// is skipped and reported. Nothing of ours is in here, so that it can be compared with Cedar rule by rule.

import type { Frame } from "./frame.js";
import type { CedarRule } from "./rule.js";

export interface RuleError {
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
        // Also what is no EvaluationError: whatever went wrong, this rule has not been evaluated.
        errors.push({ rule, message: error instanceof Error ? error.message : String(error) });
      }
    }
  }
  return { permits, forbids, errors };
}
