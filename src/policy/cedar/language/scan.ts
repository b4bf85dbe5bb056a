// Cedar text into tokens with positions, and files into policies. A `;` outside of a string or comment ends a policy,
// and nothing else does, so the cut is safe even where the text is otherwise wrong.

export interface Position {
  readonly line: number;
  readonly column: number;
}

export class Lines {
  readonly text: string;
  readonly #starts: number[] = [0];

  constructor(text: string) {
    this.text = text;
    for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) this.#starts.push(at + 1);
  }

  at(offset: number): Position {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (this.#starts[low] ?? 0) + 1 };
  }
}

export function offsetOfByte(text: string, byte: number): number {
  return Buffer.from(text).subarray(0, byte).toString("utf8").length;
}

export interface ScanToken {
  readonly kind: "word" | "number" | "string" | "symbol";
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

export class ScanError extends Error {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(message);
    this.name = "ScanError";
    this.offset = offset;
  }
}

/** Text that must not even be shown to Cedar's parser. */
export class PolicyTooDeep extends ScanError {}

/** Cedar's evaluator recurses, and past about 64 levels it takes its whole instance down; stay well below. */
const MAX_BRACKETS = 32;

const SPACE = /(?:\s+|\/\/[^\n\r]*)+/y;
const WORD = /[?$]?[_a-zA-Z][_a-zA-Z0-9]*/y;
const NUMBER = /[0-9]+/y;
const STRING = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y;
const SYMBOL = /::|==|!=|<=|>=|\|\||&&|[@.,;:(){}[\]<>+\-*/%!=]/y;
const KINDS = [
  ["word", WORD],
  ["number", NUMBER],
  ["string", STRING],
  ["symbol", SYMBOL],
] as const;

export function scan(text: string): ScanToken[] {
  const tokens: ScanToken[] = [];
  let depth = 0;
  for (let at = skipSpace(text, 0); at < text.length; ) {
    const token = tokenAt(text, at);
    if ("([{".includes(token.text) && token.kind === "symbol" && ++depth > MAX_BRACKETS) {
      throw new PolicyTooDeep(`brackets are nested deeper than ${MAX_BRACKETS} levels`, at);
    }
    if (")]}".includes(token.text) && token.kind === "symbol") depth--;
    tokens.push(token);
    at = skipSpace(text, token.end);
  }
  return tokens;
}

function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  return SPACE.test(text) ? SPACE.lastIndex : at;
}

function tokenAt(text: string, at: number): ScanToken {
  for (const [kind, pattern] of KINDS) {
    pattern.lastIndex = at;
    if (pattern.test(text)) return { kind, text: text.slice(at, pattern.lastIndex), start: at, end: pattern.lastIndex };
  }
  const what = text[at] === '"' ? "a string that never closes" : `a character Cedar does not know`;
  throw new ScanError(`${what}: ${JSON.stringify(text.slice(at, at + 12))}`, at);
}

/** The tokens of each policy, its closing `;` included; what follows the last `;` is a policy that does not end. */
export function splitPolicies(tokens: readonly ScanToken[]): ScanToken[][] {
  const policies: ScanToken[][] = [];
  let current: ScanToken[] = [];
  for (const token of tokens) {
    current.push(token);
    if (token.kind !== "symbol" || token.text !== ";") continue;
    policies.push(current);
    current = [];
  }
  if (current.length > 0) policies.push(current);
  return policies;
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  r: "\r",
  t: "\t",
  "\\": "\\",
  "0": "\0",
  "'": "'",
  '"': '"',
};
const PIECE = /[^\\]+|\\u\{([0-9a-fA-F_]{1,12})\}|\\x([0-7][0-9a-fA-F])|\\\r?\n\s*|\\([\s\S])/g;

/** The value of a string token, by the escape rules Cedar shares with Rust. */
export function unquote(token: string): string {
  return unescape(token, undefined).join("");
}

/** A pattern token as the literal pieces between its wildcards; `\*` is a star that is meant. */
export function unquotePattern(token: string): string[] {
  const pieces = [""];
  for (const text of unescape(token, "*")) {
    const [first = "", ...rest] = text === MEANT_STAR ? ["*"] : text.split("*");
    pieces[pieces.length - 1] += first;
    pieces.push(...rest);
  }
  return pieces;
}

const MEANT_STAR = "\\*";

function unescape(token: string, alsoEscaped: string | undefined): string[] {
  const pieces: string[] = [];
  for (const [whole, unicode, hex, other] of token.slice(1, -1).matchAll(PIECE)) {
    const code = unicode?.replaceAll("_", "") ?? hex;
    if (code !== undefined) pieces.push(String.fromCodePoint(Number.parseInt(code, 16)));
    else if (other === undefined) pieces.push(whole.startsWith("\\") ? "" : whole);
    else if (other === alsoEscaped) pieces.push(MEANT_STAR);
    else if (Object.hasOwn(ESCAPES, other)) pieces.push(ESCAPES[other] ?? "");
    else throw new ScanError(`${whole} is not a Cedar escape`, 0);
  }
  return pieces;
}

/** Text as a Cedar string literal. */
export function quoteString(text: string): string {
  let out = '"';
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    if (char === '"' || char === "\\") out += `\\${char}`;
    else if (char === "\n") out += "\\n";
    else if (char === "\r") out += "\\r";
    else if (char === "\t") out += "\\t";
    else if (code < 0x20 || code === 0x7f || isInvisible(code)) out += `\\u{${code.toString(16)}}`;
    else out += char;
  }
  return `${out}"`;
}

/** Literal pieces as a Cedar pattern with a wildcard between each two. */
export function quotePattern(pieces: readonly string[]): string {
  return `"${pieces.map((piece) => quoteString(piece).slice(1, -1).replaceAll("*", "\\*")).join("*")}"`;
}

/** Bidirectional controls and other marks that would let a policy read otherwise than it is. */
function isInvisible(code: number): boolean {
  return (
    (code >= 0x80 && code < 0xa0) ||
    (code >= 0x200b && code <= 0x200f) ||
    (code >= 0x2028 && code <= 0x202e) ||
    (code >= 0x2060 && code <= 0x206f) ||
    code === 0xfeff ||
    (code >= 0xfff9 && code <= 0xfffb)
  );
}

const IDENTIFIER = /^[_a-zA-Z][_a-zA-Z0-9]*$/;
const RESERVED = new Set(["true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar"]);

function isPlainName(name: string): boolean {
  return IDENTIFIER.test(name) && !RESERVED.has(name);
}

/** `holder has name` */
export function hasExpression(holder: string, name: string): string {
  return `${holder} has ${isPlainName(name) ? name : quoteString(name)}`;
}

/** `holder.name` */
export function getExpression(holder: string, name: string): string {
  return isPlainName(name) ? `${holder}.${name}` : `${holder}[${quoteString(name)}]`;
}

/** That an expression is one of these literals. */
export function literalTest(read: string, literals: readonly string[]): string {
  return literals.length === 1 ? `${read} == ${literals[0]}` : `[${literals.join(", ")}].contains(${read})`;
}
