// What can become of a call before its arguments are known, for lists of tools. Three-valued: an expression may come
// out true, false or as an error, or in several of these ways. Sound, not complete: "never" is a promise.

import { compileTest } from "./compile.js";
import type { Frame } from "./frame.js";
import { chainOf, childrenOf, type AstNode } from "./language/ast.js";
import type { CedarRule } from "./rule.js";
import { compileScope, SCOPE_PARTS } from "./scope.js";
import type { Outlook } from "./types.js";

/** Bits: what the expression may come out as. */
const TRUE = 1;
const FALSE = 2;
const ERROR = 4;
const ANYTHING = TRUE | FALSE | ERROR;

export function outlookFor(lists: readonly (readonly CedarRule[])[], frame: Frame, transportKnown: boolean): Outlook {
  const foresight = new Foresight(frame, transportKnown);
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

  constructor(frame: Frame, transportKnown: boolean) {
    this.#frame = frame;
    this.#known = new Set(transportKnown ? ["approved", "transport"] : ["approved"]);
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
    return childrenOf(node).every((child) => this.#isForeseeable(child));
  }
}

function and(left: number, right: number): number {
  return (left & (FALSE | ERROR)) | (left & TRUE ? right : 0);
}

function not(ways: number): number {
  return (ways & ERROR) | (ways & TRUE ? FALSE : 0) | (ways & FALSE ? TRUE : 0);
}
