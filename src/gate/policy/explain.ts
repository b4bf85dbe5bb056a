// Why: for every rule that the action brings into play, whether it matched and which part of it settled that.
// Runs when somebody asks, so it compiles what it looks at and is in no hurry.

import { type Test, compileTest } from "./compile.js";
import type { Frame } from "./frame.js";
import type { Clause, Node, Span } from "./language/ast.js";
import type { Rule } from "./rule.js";
import { compileScope, SCOPE_PARTS } from "./scope.js";
import type { DecidingPart, ExplainedRule } from "./types.js";

export function explainRule(rule: Rule, frame: Frame): ExplainedRule {
  const { id, file, line, effect } = rule;
  const settled = settle(rule, frame);
  const result = attempt(rule.test, frame);
  const error = typeof result === "string" ? { error: result } : {};
  return { id, file, line, effect, matched: result === true, decidedBy: settled, ...error };
}

function settle(rule: Rule, frame: Frame): DecidingPart {
  const { tree } = rule;
  if (!tree) return part(rule, "rule", undefined);
  for (const name of SCOPE_PARTS) {
    const test = compileScope(name, tree[name]);
    if (test && !test(frame)) return part(rule, name, tree[name].span);
  }
  if (rule.byCedar) return part(rule, "rule", undefined);
  for (const clause of tree.clauses) {
    const wanted = clause.kind === "when";
    const result = attempt(compileTest(clause.body), frame);
    if (result !== wanted) return part(rule, clause.kind, decisive(clause.body, frame).span ?? clause.span);
  }
  const [only] = tree.clauses;
  if (only && tree.clauses.length === 1) return part(rule, only.kind, decisiveClause(only, frame));
  return part(rule, "rule", undefined);
}

function decisiveClause(clause: Clause, frame: Frame): Span | undefined {
  return decisive(clause.body, frame).span ?? clause.span;
}

/** The smallest part of a bool expression that by itself makes it come out as it does, or makes it an error. */
function decisive(node: Node, frame: Frame): Node {
  if (node.kind === "not") return decisive(node.arg, frame);
  if (node.kind === "if") {
    const test = attempt(compileTest(node.test), frame);
    if (typeof test === "string") return decisive(node.test, frame);
    return decisive(test ? node.yes : node.no, frame);
  }
  if (node.kind !== "binary" || (node.op !== "&&" && node.op !== "||")) return node;
  const left = attempt(compileTest(node.left), frame);
  if (typeof left === "string" || left === (node.op === "||")) return decisive(node.left, frame);
  const right = attempt(compileTest(node.right), frame);
  if (typeof right === "string" || right === (node.op === "||")) return decisive(node.right, frame);
  // `a && b` is true, or `a || b` false, because of both.
  return node;
}

function attempt(test: Test, frame: Frame): boolean | string {
  try {
    return test(frame);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function part(rule: Rule, name: DecidingPart["part"], span: Span | undefined): DecidingPart {
  const { start, end } = span ?? { start: rule.start, end: rule.start + rule.text.length };
  return { part: name, text: rule.where.lines.text.slice(start, end), ...rule.where.at(start) };
}
