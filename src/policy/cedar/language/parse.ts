// A parser for positions. Cedar's own parser decides what a policy is, but its JSON form has no positions and rounds
// integers past 2^53. This one keeps both; `parsePolicy` uses its tree only where Cedar's is the same.

import type { AstNode, BinaryOp, Clause, EntityName, PolicyTree, ScopeConstraint, SourceSpan } from "./ast.js";
import { PolicyTooDeep, ScanError, type ScanToken, unquote, unquotePattern } from "./scan.js";

/** Deepest tree that Cedar validates and evaluates with room to spare; a chain of 64 `&&` is this deep. */
export const MAX_DEPTH = 64;
const MAX_CLAUSES = 16;

const VARIABLES = new Set(["principal", "action", "resource", "context"]);
const METHODS = new Set(["contains", "containsAll", "containsAny", "getTag", "hasTag"]);
const RELATIONS = new Set(["==", "!=", "<", "<=", ">", ">=", "in"]);

export function parsePolicyTokens(tokens: readonly ScanToken[]): PolicyTree {
  return new Parser(tokens).policy();
}

class Parser {
  readonly #tokens: readonly ScanToken[];
  readonly #depths = new WeakMap<AstNode, number>();
  #at = 0;
  #open = 0;

  constructor(tokens: readonly ScanToken[]) {
    this.#tokens = tokens;
  }

  policy(): PolicyTree {
    const annotations: Record<string, string> = Object.create(null);
    while (this.#take("@")) {
      const name = this.#word();
      annotations[name] = "";
      if (!this.#take("(")) continue;
      annotations[name] = unquote(this.#string());
      this.#expect(")");
    }
    const effect = this.#word();
    if (effect !== "permit" && effect !== "forbid") throw this.#wrong("`permit` or `forbid`");
    this.#expect("(");
    const principal = this.#scope("principal");
    this.#expect(",");
    const action = this.#scope("action");
    this.#expect(",");
    const resource = this.#scope("resource");
    this.#take(",");
    this.#expect(")");
    const clauses: Clause[] = [];
    while (!this.#take(";")) {
      // Clauses are nested in each other too, once Cedar has joined them.
      if (clauses.length >= MAX_CLAUSES)
        throw new PolicyTooDeep(`more than ${MAX_CLAUSES} when and unless`, this.#start());
      clauses.push(this.#clause());
    }
    return { effect, principal, action, resource, clauses, annotations };
  }

  #scope(name: string): ScopeConstraint {
    const start = this.#start();
    this.#expect(name);
    if (this.#take("==")) return { op: "==", entity: this.#entityName(), span: this.#span(start) };
    if (this.#take("in")) {
      const entities = this.#take("[") ? this.#list("]", () => this.#entityName()) : [this.#entityName()];
      return { op: "in", entities, span: this.#span(start) };
    }
    if (this.#take("is")) {
      const entityType = this.#path();
      const within = this.#take("in") ? { in: this.#entityName() } : {};
      return { op: "is", entityType, ...within, span: this.#span(start) };
    }
    return { op: "all", span: this.#span(start) };
  }

  #clause(): Clause {
    const start = this.#start();
    const kind = this.#word();
    if (kind !== "when" && kind !== "unless") throw this.#wrong("`when` or `unless`");
    this.#expect("{");
    const body = this.#expr();
    this.#expect("}");
    return { kind, body, span: this.#span(start) };
  }

  #expr(): AstNode {
    this.#enter();
    const node = this.#peek("if") ? this.#ifThenElse() : this.#or();
    this.#open--;
    return node;
  }

  #ifThenElse(): AstNode {
    const start = this.#start();
    this.#expect("if");
    const test = this.#expr();
    this.#expect("then");
    const yes = this.#expr();
    this.#expect("else");
    return this.#node({ kind: "if", test, yes, no: this.#expr(), span: this.#span(start) });
  }

  #or(): AstNode {
    return this.#leftAssociative(["||"], () => this.#leftAssociative(["&&"], () => this.#relation()));
  }

  #add(): AstNode {
    return this.#leftAssociative(["+", "-"], () => this.#leftAssociative(["*"], () => this.#unary()));
  }

  #leftAssociative(ops: readonly BinaryOp[], operand: () => AstNode): AstNode {
    const start = this.#start();
    let left = operand();
    for (;;) {
      const op = ops.find((candidate) => this.#take(candidate));
      if (op === undefined) return left;
      const right = operand();
      left = this.#node({ kind: "binary", op, left, right, span: this.#span(start) });
    }
  }

  #relation(): AstNode {
    const start = this.#start();
    const left = this.#add();
    if (this.#take("has")) {
      const attrs = this.#peekKind("string") ? [unquote(this.#string())] : [this.#word()];
      while (this.#take(".")) attrs.push(this.#word());
      return this.#node({ kind: "has", left, attrs, span: this.#span(start) });
    }
    if (this.#take("like")) {
      const pattern = unquotePattern(this.#string());
      return this.#node({ kind: "like", left, pattern, span: this.#span(start) });
    }
    if (this.#take("is")) {
      const entityType = this.#path();
      const within = this.#take("in") ? { in: this.#add() } : {};
      return this.#node({ kind: "is", left, entityType, ...within, span: this.#span(start) });
    }
    const op = this.#current()?.text;
    if (op === undefined || this.#peekKind("string") || !RELATIONS.has(op)) return left;
    this.#at++;
    const right = this.#add();
    return this.#node({ kind: "binary", op: op as BinaryOp, left, right, span: this.#span(start) });
  }

  #unary(): AstNode {
    this.#enter();
    const node = this.#signed();
    this.#open--;
    return node;
  }

  #signed(): AstNode {
    const start = this.#start();
    if (this.#take("!")) return this.#node({ kind: "not", arg: this.#unary(), span: this.#span(start) });
    if (!this.#take("-")) return this.#member();
    // `-5` is one literal, `-(5)` is a negation: Cedar folds only the number that stands right behind the sign.
    if (this.#peekKind("number") && !this.#accessFollows(1)) {
      return this.#node({ kind: "literal", value: toLong(-BigInt(this.#next().text)), span: this.#span(start) });
    }
    return this.#node({ kind: "neg", arg: this.#unary(), span: this.#span(start) });
  }

  #accessFollows(ahead: number): boolean {
    const text = this.#tokens[this.#at + ahead]?.text;
    return text === "." || text === "[" || text === "(";
  }

  #member(): AstNode {
    const start = this.#start();
    let node = this.#primary();
    for (;;) {
      if (this.#take("[")) {
        const attr = unquote(this.#string());
        this.#expect("]");
        node = this.#node({ kind: "get", left: node, attr, span: this.#span(start) });
      } else if (this.#take(".")) {
        const name = this.#word();
        node = this.#take("(")
          ? this.#method(node, name, start)
          : this.#node({ kind: "get", left: node, attr: name, span: this.#span(start) });
      } else return node;
    }
  }

  #method(receiver: AstNode, name: string, start: number): AstNode {
    const args = this.#list(")", () => this.#expr());
    const span = this.#span(start);
    const first = args[0];
    if (name === "isEmpty" && args.length === 0) return this.#node({ kind: "isEmpty", arg: receiver, span });
    if (METHODS.has(name) && first && args.length === 1) {
      return this.#node({ kind: "binary", op: name as BinaryOp, left: receiver, right: first, span });
    }
    return this.#node({ kind: "call", fn: name, args: [receiver, ...args], span });
  }

  #primary(): AstNode {
    const start = this.#start();
    if (this.#peekKind("string")) {
      return this.#node({ kind: "literal", value: unquote(this.#string()), span: this.#span(start) });
    }
    if (this.#peekKind("number")) {
      return this.#node({ kind: "literal", value: toLong(BigInt(this.#next().text)), span: this.#span(start) });
    }
    if (this.#take("(")) {
      const inner = this.#expr();
      this.#expect(")");
      return inner;
    }
    if (this.#take("[")) {
      const items = this.#list("]", () => this.#expr());
      return this.#node({ kind: "set", items, span: this.#span(start) });
    }
    if (this.#take("{")) {
      const entries = this.#list("}", () => this.#recordEntry());
      entries.sort(([a], [b]) => (a < b ? -1 : 1));
      return this.#node({ kind: "record", entries, span: this.#span(start) });
    }
    if (this.#take("true")) return this.#node({ kind: "literal", value: true, span: this.#span(start) });
    if (this.#take("false")) return this.#node({ kind: "literal", value: false, span: this.#span(start) });
    return this.#named(start);
  }

  #recordEntry(): [string, AstNode] {
    const name = this.#peekKind("string") ? unquote(this.#string()) : this.#word();
    this.#expect(":");
    return [name, this.#expr()];
  }

  #named(start: number): AstNode {
    const path = this.#path();
    if (this.#take("::")) {
      return this.#node({ kind: "entity", type: path, id: unquote(this.#string()), span: this.#span(start) });
    }
    if (this.#take("(")) {
      const args = this.#list(")", () => this.#expr());
      return this.#node({ kind: "call", fn: path, args, span: this.#span(start) });
    }
    if (!VARIABLES.has(path)) throw this.#wrong("a variable");
    return this.#node({ kind: "var", name: path as "context", span: this.#span(start) });
  }

  #entityName(): EntityName {
    const type = this.#path();
    this.#expect("::");
    return { type, id: unquote(this.#string()) };
  }

  #path(): string {
    const parts = [this.#word()];
    while (this.#peek("::") && this.#tokens[this.#at + 1]?.kind === "word") {
      this.#at++;
      parts.push(this.#word());
    }
    return parts.join("::");
  }

  #list<T>(close: string, item: () => T): T[] {
    const items: T[] = [];
    while (!this.#take(close)) {
      items.push(item());
      if (!this.#take(",")) {
        this.#expect(close);
        break;
      }
    }
    return items;
  }

  /** The parser recurses too, so what is open is bounded before the tree is. */
  #enter(): void {
    if (++this.#open > 2 * MAX_DEPTH) throw tooDeep(this.#start());
  }

  /** INVARIANT: no node leaves the parser that is deeper than what Cedar can evaluate. */
  #node<T extends AstNode>(node: T): T {
    let depth = 0;
    for (const child of Object.values(node)) {
      for (const item of Array.isArray(child) ? child.flat() : [child]) {
        if (typeof item === "object" && item !== null) depth = Math.max(depth, this.#depths.get(item as AstNode) ?? 0);
      }
    }
    if (depth >= MAX_DEPTH) throw tooDeep(node.span?.start ?? 0);
    this.#depths.set(node, depth + 1);
    return node;
  }

  #current(): ScanToken | undefined {
    return this.#tokens[this.#at];
  }
  #next(): ScanToken {
    const token = this.#current();
    if (!token) throw this.#wrong("more");
    this.#at++;
    return token;
  }
  #peek(text: string): boolean {
    const token = this.#current();
    return token?.text === text && token.kind !== "string";
  }
  #peekKind(kind: ScanToken["kind"]): boolean {
    return this.#current()?.kind === kind;
  }
  #take(text: string): boolean {
    if (!this.#peek(text)) return false;
    this.#at++;
    return true;
  }
  #expect(text: string): void {
    if (!this.#take(text)) throw this.#wrong(`\`${text}\``);
  }
  #word(): string {
    if (!this.#peekKind("word")) throw this.#wrong("a name");
    return this.#next().text;
  }
  #string(): string {
    if (!this.#peekKind("string")) throw this.#wrong("a string");
    return this.#next().text;
  }
  #start(): number {
    return this.#current()?.start ?? this.#tokens.at(-1)?.end ?? 0;
  }
  #span(start: number): SourceSpan {
    return { start, end: this.#tokens[this.#at - 1]?.end ?? start };
  }
  #wrong(expected: string): ScanError {
    const token = this.#current();
    return new ScanError(`expected ${expected}, found ${token?.text ?? "the end"}`, this.#start());
  }
}

function tooDeep(offset: number): PolicyTooDeep {
  return new PolicyTooDeep(
    `an expression is nested deeper than ${MAX_DEPTH} levels; write a long chain of == as [ … ].contains( … )`,
    offset,
  );
}

/** A Long is a number while that is exact, else a bigint, so that every value has one form. */
function toLong(value: bigint): number | bigint {
  return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}
