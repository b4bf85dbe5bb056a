// A rule ready to run.

import { type Test, compileTest } from "./compile.js";
import { evaluateByCedar } from "./fallback.js";
import type { Frame } from "./frame.js";
import type { PolicyTree } from "./language/ast.js";
import { canonicalText } from "./language/ast.js";
import { NotCovered } from "./language/json.js";
import type { RuleMeta } from "./annotations.js";
import { compileScope, SCOPE_PARTS } from "./scope.js";
import type { Draft, SourcePlace } from "./source.js";
import type { PolicyText } from "./types.js";
import { createHash } from "node:crypto";

export interface CedarRule extends PolicyText {
  readonly meta: RuleMeta;
  readonly tree: PolicyTree | undefined;
  readonly start: number;
  readonly where: SourcePlace;
  readonly byCedar: boolean;
  /** Whether the rule is satisfied; throws EvaluationError where Cedar would report one. */
  readonly test: Test;
}

export interface RuleOptions {
  /** For tests: run these on Cedar although the compiler covers them. */
  readonly forceCedar?: (id: string) => boolean;
}

export function makeRule(draft: Draft, options: RuleOptions = {}): CedarRule {
  const own = draft.exact && !options.forceCedar?.(draft.id) ? compileTree(draft.tree) : undefined;
  return {
    id: draft.id,
    file: draft.where.file,
    line: draft.where.at(draft.start).line,
    effect: draft.effect,
    text: draft.text,
    digest: digestOf(draft),
    meta: draft.meta,
    tree: draft.tree,
    start: draft.start,
    where: draft.where,
    byCedar: own === undefined,
    test: own ?? ((frame: Frame) => evaluateByCedar(draft, frame)),
  };
}

function compileTree(tree: PolicyTree | undefined): Test | undefined {
  if (!tree) return undefined;
  try {
    const scopes = SCOPE_PARTS.flatMap((part) => compileScope(part, tree[part]) ?? []);
    const clauses = tree.clauses.map((clause) => {
      const test = compileTest(clause.body);
      return clause.kind === "when" ? test : (frame: Frame): boolean => !test(frame);
    });
    return conjunction([...scopes, ...clauses]);
  } catch (error) {
    if (error instanceof NotCovered) return undefined;
    throw error;
  }
}

/** In order, and no further than the first that fails: what stands behind it must not even be evaluated. */
function conjunction(tests: readonly Test[]): Test {
  const [first, second, third] = tests;
  if (!first) return () => true;
  if (!second) return first;
  if (!third) return (frame) => first(frame) && second(frame);
  return (frame) => {
    for (const test of tests) if (!test(frame)) return false;
    return true;
  };
}

function digestOf(draft: Draft): string {
  const form = draft.exact ? canonicalText(draft.tree) : draft.text;
  return createHash("sha256").update(form).digest("hex");
}
