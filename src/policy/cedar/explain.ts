// Why: for every rule that the action brings into play, whether it matched and which part of it settled that.
// Runs when somebody asks, so it compiles what it looks at and is in no hurry.

import { type Test, compileExpression, compileTest } from "./compile.js";
import type { Frame } from "./frame.js";
import { chainOf, childrenOf, type AstNode, type SourceSpan } from "./language/ast.js";
import type { CedarRule } from "./rule.js";
import { compileScope, SCOPE_PARTS } from "./scope.js";
import type { DecidingPart, ExplainedRule, ExplainedValue } from "./types.js";
import { CedarRecord, CedarSet, Entity, Unencodable, type Value } from "./value/value.js";

const MAX_VALUES = 20;
const MAX_VALUE_LENGTH = 200;

export function explainRule(rule: CedarRule, frame: Frame): ExplainedRule {
  const { id, file, line, effect } = rule;
  const { decidedBy, nodes } = settle(rule, frame);
  const result = attempt(rule.test, frame);
  const error = typeof result === "string" ? { error: result } : {};
  const values = valuesOf(nodes, frame);
  return { id, file, line, effect, matched: result === true, decidedBy, values, ...error };
}

interface Settled {
  readonly decidedBy: DecidingPart;
  /** The expressions whose values settled it. */
  readonly nodes: readonly AstNode[];
}

function settle(rule: CedarRule, frame: Frame): Settled {
  const { tree } = rule;
  const whole = part(rule, "rule", undefined);
  if (!tree) return { decidedBy: whole, nodes: [] };
  for (const name of SCOPE_PARTS) {
    const test = compileScope(name, tree[name]);
    if (test && !test(frame)) {
      return { decidedBy: part(rule, name, tree[name].span), nodes: [{ kind: "var", name }] };
    }
  }
  if (rule.byCedar) return { decidedBy: whole, nodes: [] };
  const nodes: AstNode[] = [];
  for (const clause of tree.clauses) {
    const node = decisive(clause.body, frame);
    const decidedBy = part(rule, clause.kind, node.span ?? clause.span);
    const result = attempt(compileTest(clause.body), frame);
    if (result !== (clause.kind === "when") || tree.clauses.length === 1) return { decidedBy, nodes: [node] };
    nodes.push(node);
  }
  return { decidedBy: whole, nodes };
}

/** What the attributes and variables in these expressions are in this request, each once. */
function valuesOf(nodes: readonly AstNode[], frame: Frame): ExplainedValue[] {
  const found = new Map<string, ExplainedValue>();
  const visit = (node: AstNode): void => {
    if (found.size >= MAX_VALUES) return;
    const asked: AstNode =
      node.kind === "has" ? node.attrs.reduce<AstNode>((left, attr) => ({ kind: "get", left, attr }), node.left) : node;
    const chain = chainOf(asked);
    if (!chain) {
      // An expression that is not evaluated has no part in the result.
      if (asked.kind === "if") {
        visit(asked.test);
        const test = attempt(compileTest(asked.test), frame);
        if (typeof test === "boolean") visit(test ? asked.yes : asked.no);
      } else for (const child of childrenOf(asked)) visit(child);
      return;
    }
    const expression = [chain.root, ...chain.path].join(".");
    if (found.has(expression)) return;
    try {
      found.set(expression, { expression, value: cut(textOf(compileExpression(asked)(frame))) });
    } catch (error) {
      found.set(expression, { expression, problem: (error as Error).message });
    }
  };
  for (const node of nodes) visit(node);
  return [...found.values()];
}

/** A value in Cedar's notation. */
function textOf(value: Value): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof Entity) return `${value.type}::${JSON.stringify(value.id)}`;
  if (value instanceof CedarSet) return `[${value.items.map(textOf).join(", ")}]`;
  if (value instanceof CedarRecord) {
    return `{${[...value.attrs].map(([name, each]) => `${JSON.stringify(name)}: ${textOf(each)}`).join(", ")}}`;
  }
  if (value instanceof Unencodable) return value.why;
  return String(value);
}

function cut(text: string): string {
  return text.length <= MAX_VALUE_LENGTH ? text : `${text.slice(0, MAX_VALUE_LENGTH)}…`;
}

/** The smallest part of a bool expression that by itself makes it come out as it does, or makes it an error. */
function decisive(node: AstNode, frame: Frame): AstNode {
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

function part(rule: CedarRule, name: DecidingPart["part"], span: SourceSpan | undefined): DecidingPart {
  const { start, end } = span ?? { start: rule.start, end: rule.start + rule.text.length };
  return { part: name, text: rule.where.lines.text.slice(start, end), ...rule.where.at(start) };
}
