// Why: for every rule that the action brings into play, whether it matched and which part of it settled that.
// Runs on request only, so it compiles what it reads and is not optimized.

import { conditionOf } from "../history/source.js";
import { compileExpression, compileTest, type Test } from "./compile.js";
import type { Frame } from "./frame.js";
import { type AstNode, chainOf, childrenOf, type SourceSpan } from "./language/ast.js";
import { type CedarRule, compileScope, SCOPE_PARTS } from "./rule.js";
import type { DecidingPart, ExplainedRule, ExplainedValue, Outlook } from "./types.js";
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
    if (conditionOf(chain.path[0] ?? "") !== undefined) return;
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
  const read = span ?? { start: rule.start, end: rule.start + rule.text.length };
  // A read of `context` that stands for a condition over past events lies within it.
  const { start, end } = rule.conditions.find((each) => each.start <= read.start && read.end <= each.end) ?? read;
  return { part: name, text: rule.where.lines.text.slice(start, end), ...rule.where.at(start) };
}

/** Bits: what the expression may come out as. */
const TRUE = 1;
const FALSE = 2;
const ERROR = 4;
const ANYTHING = TRUE | FALSE | ERROR;

/** What an outlook was given of a caller, besides its agent. */
interface Known {
  readonly transport: boolean;
  /** The user and its groups. */
  readonly people: boolean;
}

const OF_PEOPLE = new Set(["user", "groups"]);

export function outlookFor(lists: readonly (readonly CedarRule[])[], frame: Frame, known: Known): Outlook {
  const foresight = new Foresight(frame, known);
  let permitted = false;
  let challenged = false;
  for (const rule of lists.flat()) {
    const ways = foresight.rule(rule);
    if (ways === ERROR) return "never";
    if (rule.effect === "permit") permitted ||= (ways & TRUE) !== 0;
    else if ((ways & FALSE) === 0) {
      if (!rule.meta.challenge || !foresight.approvalCanHelp(rule)) return "never";
      challenged = true;
    }
  }
  if (!permitted) return "never";
  return challenged ? "challenge" : "possible";
}

class Foresight {
  readonly #frame: Frame;
  readonly #known: ReadonlySet<string>;
  readonly #peopleKnown: boolean;

  constructor(frame: Frame, { transport, people }: Known) {
    this.#frame = frame;
    this.#known = new Set(transport ? ["approved", "transport"] : ["approved"]);
    this.#peopleKnown = people;
  }

  approvalCanHelp(rule: CedarRule): boolean {
    this.#frame.approved = true;
    const ways = this.rule(rule);
    this.#frame.approved = false;
    return (ways & FALSE) !== 0;
  }

  rule({ tree, byCedar }: CedarRule): number {
    if (!tree) return ANYTHING;
    if (!SCOPE_PARTS.every((part) => compileScope(part, tree[part])?.(this.#frame) ?? true)) return FALSE;
    if (byCedar) return ANYTHING;
    let ways = TRUE;
    for (const clause of tree.clauses) {
      const body = this.#node(clause.body);
      ways = and(ways, clause.kind === "when" ? body : not(body));
    }
    return ways;
  }

  #node(node: AstNode): number {
    if (node.kind === "not") return not(this.#node(node.arg));
    if (node.kind === "binary" && node.op === "&&") return and(this.#node(node.left), this.#node(node.right));
    if (node.kind === "binary" && node.op === "||") {
      return not(and(not(this.#node(node.left)), not(this.#node(node.right))));
    }
    if (node.kind === "if") {
      const test = this.#node(node.test);
      const yes = test & TRUE ? this.#node(node.yes) : 0;
      const no = test & FALSE ? this.#node(node.no) : 0;
      return (test & ERROR) | yes | no;
    }
    return this.#isForeseeable(node) ? this.#evaluate(node) : ANYTHING;
  }

  /** INVARIANT: the node reads nothing that is still to come, so evaluating it now is evaluating it ever. */
  #evaluate(node: AstNode): number {
    try {
      return compileTest(node)(this.#frame) ? TRUE : FALSE;
    } catch {
      return ERROR;
    }
  }

  #isForeseeable(node: AstNode): boolean {
    if (node.kind === "var") return node.name !== "context";
    const chain = node.kind === "get" ? chainOf(node) : undefined;
    if (chain?.root === "context") return this.#known.has(chain.path[0] ?? "");
    if (!this.#peopleKnown && readsPeople(node)) return false;
    return childrenOf(node).every((child) => this.#isForeseeable(child));
  }
}

function readsPeople(node: AstNode): boolean {
  const [first = ""] = node.kind === "get" ? [node.attr] : node.kind === "has" ? node.attrs : [];
  return OF_PEOPLE.has(first);
}

function and(left: number, right: number): number {
  return (left & (FALSE | ERROR)) | (left & TRUE ? right : 0);
}

function not(ways: number): number {
  return (ways & ERROR) | (ways & TRUE ? FALSE : 0) | (ways & FALSE ? TRUE : 0);
}
