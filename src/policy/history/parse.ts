// The text of a condition over past events into a formula. Tokens are those of the policy file, so every position is one
// in the file.

import { type ScanToken, unquote } from "../cedar/language/scan.js";
import {
  type Binder,
  type Comparator,
  type EventField,
  FormulaError,
  type MacroArgument,
  type PastFormula,
  type Term,
  type Window,
} from "./formula.js";
import { booleanKey, decimalKey, entityKey, stringKey } from "./value-key.js";

const COMPARATORS = new Set(["<", "<=", ">", ">=", "==", "!="]);
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Words that begin something, so that none of them is a variable. */
const RESERVED = new Set(["true", "false", "context", "principal", "resource", "action", "since", "within", "where"]);
const MAX_LONG = 2n ** 63n - 1n;
/** Longer than any history that is kept. */
const MAX_WINDOW_DAYS = 36_600;
const MAX_WINDOW_MS = MAX_WINDOW_DAYS * 24 * 3_600_000;
const NAME = /^[_a-zA-Z][_a-zA-Z0-9]*$/;

/** A whole condition, up to the last of the tokens; `end` is where they end in the file. */
export function parseCondition(tokens: readonly ScanToken[], end: number): PastFormula {
  const parser = new FormulaParser(tokens, end);
  const formula = parser.condition();
  parser.finish();
  return formula;
}

/** The body of a macro: a condition, or a value that ends where the body ends. */
export function parseMacroBody(tokens: readonly ScanToken[], end: number): MacroArgument {
  const parser = new FormulaParser(tokens, end);
  const term = parser.wholeTerm();
  if (term) return { kind: "term", term };
  const formula = parser.condition();
  parser.finish();
  return { kind: "formula", formula };
}

class FormulaParser {
  readonly #tokens: readonly ScanToken[];
  readonly #end: number;
  #at = 0;
  readonly #terms = new Map<number, { term: Term; next: number } | FormulaError>();
  #furthest: FormulaError | undefined;

  constructor(tokens: readonly ScanToken[], end: number) {
    this.#tokens = tokens;
    this.#end = end;
  }

  condition(): PastFormula {
    let left = this.#conjunctOrSince();
    while (this.#take("&&")) {
      const right = this.#conjunctOrSince();
      left = { kind: "and", at: left.at, left, right };
    }
    return left;
  }

  finish(): void {
    if (this.#at < this.#tokens.length) {
      this.#fail(`unexpected ${this.#shown()}`, "a condition continues with && or since");
    }
  }

  wholeTerm(): Term | undefined {
    const term = this.#attempt(() => this.#arithmetic());
    if (term && this.#at === this.#tokens.length) return term;
    this.#at = 0;
    return undefined;
  }

  #conjunctOrSince(): PastFormula {
    const left = this.#negated();
    if (!this.#take("since")) return left;
    const within = this.#within();
    return { kind: "since", at: left.at, left, within, right: this.#atom() };
  }

  #negated(): PastFormula {
    const at = this.#offset;
    if (this.#take("!")) return { kind: "not", at, body: this.#negated() };
    return this.#conjunct();
  }

  #conjunct(): PastFormula {
    return this.#attempt(() => this.#comparison()) ?? this.#simple(true);
  }

  /** What may stand behind `formerly within …` without brackets. */
  #atom(): PastFormula {
    const first = this.#attempt(() => this.#simple(false));
    return first ?? this.#comparison();
  }

  #simple(withOperators: boolean): PastFormula {
    const at = this.#offset;
    const token = this.#peek();
    if (!token) this.#fail("unexpected end of the condition", "a condition over events is expected");
    if (token.text === "(") {
      this.#at++;
      const inner = this.condition();
      this.#expect(")");
      return inner;
    }
    if (token.text === "let") {
      this.#fail("`let` is not part of the language", "write exists (n: Long). ((count …) == n && …)");
    }
    const next = this.#peek(1)?.text;
    if (withOperators && (token.text === "formerly" || token.text === "previous") && next !== "::") {
      this.#at++;
      const within = this.#within();
      return { kind: token.text, at, within, body: this.#atom() };
    }
    if (withOperators && token.text === "exists") {
      this.#at++;
      const binder = this.#typedBinder();
      this.#expect(".");
      return { kind: "exists", at, binder, body: this.condition() };
    }
    if (token.text === "tp" && next === "(") {
      this.#at += 2;
      const name = this.#slot();
      this.#expect(")");
      return { kind: "timepoint", at, name };
    }
    if (token.kind === "word" && NAME.test(token.text) && next === "(") return this.#call(at);
    if (token.text.startsWith("?")) {
      this.#at++;
      return this.#refined({ kind: "parameter", at, name: token.text });
    }
    return this.#event(at);
  }

  #refined(base: PastFormula): PastFormula {
    let formula = base;
    while (this.#peek()?.text === "{")
      formula = { kind: "refine", at: formula.at, body: formula, fields: this.#fields() };
    return formula;
  }

  #event(at: number): PastFormula {
    const { type, id } = this.#entityName();
    this.#expect("::", "an event has a kind, such as ::request");
    const event = this.#name("the kind of an event");
    return this.#refined({ kind: "event", at, type, action: id, event, fields: this.#fields() });
  }

  #entityName(): { type: string; id: string } {
    const parts = [this.#name("an event, a comparison or an operator over the past")];
    for (;;) {
      this.#expect("::", 'an event is written Action::"tool"::request{ … }');
      const token = this.#peek();
      if (token?.kind === "string") {
        this.#at++;
        return { type: parts.join("::"), id: this.#text(token) };
      }
      parts.push(this.#name("a name or a text"));
    }
  }

  #fields(): EventField[] {
    this.#expect("{");
    const fields: EventField[] = [];
    if (this.#take("}")) return fields;
    do {
      const at = this.#offset;
      const path = [this.#name("the name of a field")];
      while (this.#take(".")) path.push(this.#name("the name of a field"));
      this.#expect(":");
      fields.push({ at, path: path.join("."), value: this.#arithmetic() });
    } while (this.#take(","));
    this.#expect("}");
    return fields;
  }

  #comparison(): PastFormula {
    const at = this.#offset;
    const left = this.#arithmetic();
    const op = this.#peek()?.text ?? "";
    if (!COMPARATORS.has(op)) this.#fail(`unexpected ${this.#shown()}`, "a comparison such as == is expected here");
    this.#at++;
    return { kind: "compare", at, op: op as Comparator, left, right: this.#arithmetic() };
  }

  #arithmetic(): Term {
    let left = this.#product();
    for (;;) {
      const op = this.#peek()?.text;
      if (op !== "+" && op !== "-") return left;
      this.#at++;
      left = { kind: "arithmetic", at: left.at, op, left, right: this.#product() };
    }
  }

  #product(): Term {
    let left = this.#term();
    while (this.#take("*")) left = { kind: "arithmetic", at: left.at, op: "*", left, right: this.#term() };
    return left;
  }

  /** Read once for each place: a condition in brackets is tried as a value first. */
  #term(): Term {
    const start = this.#at;
    const known = this.#terms.get(start);
    if (known instanceof FormulaError) throw known;
    if (known) {
      this.#at = known.next;
      return known.term;
    }
    try {
      const term = this.#newTerm();
      this.#terms.set(start, { term, next: this.#at });
      return term;
    } catch (error) {
      if (error instanceof FormulaError) this.#terms.set(start, error);
      throw error;
    }
  }

  #newTerm(): Term {
    const at = this.#offset;
    const token = this.#peek();
    if (!token) this.#fail("unexpected end of the condition", "a value is expected");
    const { text } = token;
    if (token.kind === "string") {
      this.#at++;
      return { kind: "value", at, key: stringKey(this.#text(token)), type: "String" };
    }
    if (token.kind === "number" || text === "-") return this.#integer(at);
    if (text === "*" || text === "_") {
      this.#at++;
      return { kind: "any", at };
    }
    if (text === "(") {
      this.#at++;
      const inner = this.#arithmetic();
      this.#expect(")");
      return inner;
    }
    if (text === "[") return this.#set(at);
    if (token.kind !== "word") this.#fail(`unexpected ${this.#shown()}`, "a value is expected");
    return this.#wordTerm(at, text);
  }

  #wordTerm(at: number, text: string): Term {
    const next = this.#peek(1)?.text;
    if (text.startsWith("?") || text.startsWith("$")) {
      this.#at++;
      return { kind: "variable", at, name: text };
    }
    if (text === "true" || text === "false") {
      this.#at++;
      return { kind: "value", at, key: booleanKey(text === "true"), type: "Bool" };
    }
    if (text === "context" || text === "principal" || text === "resource") return this.#current(at);
    if (next === "::") {
      const { type, id } = this.#entityName();
      return { kind: "value", at, key: entityKey(type, id), type };
    }
    if (text === "decimal" && next === "(") return this.#decimal(at);
    if (text === "count" || text === "sum") {
      const aggregate = this.#aggregate(at, text);
      if (aggregate) return aggregate;
    }
    if (next === "(") return this.#call(at);
    if (RESERVED.has(text)) this.#fail(`unexpected ${this.#shown()}`, "a value is expected");
    this.#at++;
    return { kind: "variable", at, name: text };
  }

  #current(at: number): Term {
    const path = [this.#name("a name")];
    while (this.#take(".")) path.push(this.#name("the name of an attribute"));
    if (path[0] === "context" && path.length === 1) this.#fail("context is used as a whole", "name a part of it");
    return { kind: "current", at, path: path.join(".") };
  }

  #integer(at: number): Term {
    const negative = this.#take("-");
    const token = this.#peek();
    if (token?.kind !== "number") this.#fail(`unexpected ${this.#shown()}`, "a number is expected");
    this.#at++;
    const value = negative ? -BigInt(token.text) : BigInt(token.text);
    if (value > MAX_LONG || value < -MAX_LONG - 1n) {
      this.#at--;
      this.#fail(`the number ${value} is out of range`, "a Long has 64 bits");
    }
    return { kind: "value", at, key: String(value), type: "Long" };
  }

  #decimal(at: number): Term {
    this.#at += 2;
    const token = this.#peek();
    if (token?.kind !== "string") this.#fail(`unexpected ${this.#shown()}`, 'write decimal("1.5")');
    this.#at++;
    this.#expect(")");
    return { kind: "value", at, key: decimalKey(this.#text(token)), type: "decimal" };
  }

  #set(at: number): Term {
    this.#expect("[");
    const items: Term[] = [];
    if (this.#take("]")) return { kind: "set", at, items };
    do items.push(this.#arithmetic());
    while (this.#take(","));
    this.#expect("]");
    return { kind: "set", at, items };
  }

  #aggregate(at: number, word: "count" | "sum"): Term | undefined {
    const isIt = word === "count" ? this.#peek(1)?.text === "for" : this.#peek(2)?.text === "for";
    if (!isIt) return undefined;
    this.#at++;
    const sum = word === "sum" ? this.#slot() : undefined;
    this.#expect("for");
    const over: Binder[] = [];
    do over.push(this.#typedBinder());
    while (this.#take(","));
    this.#expect(".");
    this.#expect("where");
    return { kind: "aggregate", at, sum, over, body: this.condition() };
  }

  #call(at: number): { kind: "call"; at: number; name: string; args: MacroArgument[] } {
    const name = this.#name("the name of a macro");
    this.#expect("(");
    const args: MacroArgument[] = [];
    if (this.#take(")")) return { kind: "call", at, name, args };
    do args.push(this.#argument());
    while (this.#take(","));
    this.#expect(")");
    return { kind: "call", at, name, args };
  }

  #argument(): MacroArgument {
    const window = this.#attempt(() => this.#window());
    if (window && this.#endsArgument()) return { kind: "window", window };
    const start = window ? this.#at - ("ms" in window ? 2 : 1) : this.#at;
    this.#at = start;
    const formula = this.#attempt(() => this.condition());
    if (formula && formula.kind !== "parameter" && this.#endsArgument()) return { kind: "formula", formula };
    this.#at = start;
    return { kind: "term", term: this.#arithmetic() };
  }

  #endsArgument(): boolean {
    const text = this.#peek()?.text;
    return text === "," || text === ")";
  }

  #typedBinder(): Binder {
    this.#expect("(", "a variable is written (name: Type)");
    const at = this.#offset;
    const name = this.#slot();
    this.#expect(":");
    const type = [this.#name("a type")];
    while (this.#take("::")) type.push(this.#name("a type"));
    this.#expect(")");
    return { name, type: type.join("::"), at };
  }

  #slot(): string {
    const token = this.#peek();
    if (token?.kind !== "word") this.#fail(`unexpected ${this.#shown()}`, "the name of a variable is expected");
    if (["principal", "action", "resource", "context"].includes(token.text)) {
      this.#fail(`\`${token.text}\` cannot be the name of a variable`, "give it another name");
    }
    this.#at++;
    return token.text;
  }

  #within(): Window {
    this.#expect("within", "every look into the past has a window, such as within 1h");
    return this.#window();
  }

  #window(): Window {
    const token = this.#peek();
    if (token?.text.startsWith("?")) {
      this.#at++;
      return { parameter: token.text };
    }
    if (token?.kind !== "number") this.#fail(`unexpected ${this.#shown()}`, "a window is a number and s, m, h or d");
    const unit = this.#peek(1);
    const ms = UNIT_MS[unit?.text ?? ""];
    if (ms === undefined) {
      this.#at++;
      this.#fail(`unexpected ${this.#shown()}`, "the unit of a window is s, m, h or d");
    }
    this.#at += 2;
    const length = Number(token.text) * ms;
    if (length === 0 || length > MAX_WINDOW_MS) {
      this.#at -= 2;
      this.#fail(`the window ${token.text}${unit?.text} is out of range`, `from 1s to ${MAX_WINDOW_DAYS}d`);
    }
    return { ms: length, text: `${token.text}${unit?.text}` };
  }

  #name(what: string): string {
    const token = this.#peek();
    if (token?.kind !== "word" || !NAME.test(token.text)) {
      this.#fail(`unexpected ${this.#shown()}`, `${what} is expected`);
    }
    this.#at++;
    return token.text;
  }

  #text(token: ScanToken): string {
    try {
      return unquote(token.text);
    } catch (error) {
      throw new FormulaError((error as Error).message, token.start);
    }
  }

  /** Undefined where it cannot be read that way; the error that got furthest is kept for the message. */
  #attempt<T>(read: () => T): T | undefined {
    const start = this.#at;
    try {
      return read();
    } catch (error) {
      if (!(error instanceof FormulaError)) throw error;
      if (!this.#furthest || error.offset > this.#furthest.offset) this.#furthest = error;
      this.#at = start;
      return undefined;
    }
  }

  #fail(message: string, help: string): never {
    const error = new FormulaError(message, this.#offset, help);
    throw this.#furthest && this.#furthest.offset > error.offset ? this.#furthest : error;
  }

  get #offset(): number {
    return this.#peek()?.start ?? this.#end;
  }

  #shown(): string {
    const token = this.#peek();
    return token ? `\`${token.text}\`` : "end of the condition";
  }

  #peek(ahead = 0): ScanToken | undefined {
    return this.#tokens[this.#at + ahead];
  }

  #take(text: string): boolean {
    const token = this.#peek();
    if (token?.text !== text || token.kind === "string") return false;
    this.#at++;
    return true;
  }

  #expect(text: string, help = ""): void {
    if (!this.#take(text)) this.#fail(`unexpected ${this.#shown()}, expected \`${text}\``, help);
  }
}
