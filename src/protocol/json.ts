// Strict JSON. A gate that reads a message one way while the tool behind it reads the same bytes another way is no
// gate, so whatever two parsers could disagree about is refused: duplicate keys, integers that lose digits,
// lone surrogates, numbers that overflow, nesting without end.

export type JsonPrimitive = string | number | boolean | null;
export type JsonValue = JsonPrimitive | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue;
}

/** Nesting that any honest message stays far below; `JSON.stringify` recurses, so depth must be bounded first. */
export const DEFAULT_MAX_DEPTH = 128;

export class StrictJsonError extends Error {
  readonly code = "PARSE_ERROR";
  readonly offset: number;
  constructor(reason: string, offset = 0) {
    super(reason);
    this.name = "StrictJsonError";
    this.offset = offset;
  }
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const LONG_DIGITS = /[0-9]{16}/;
/** Below this the plain search is quicker than looking for strings. */
const SHORT = 4096;

export function parseStrict(text: string, maxDepth: number = DEFAULT_MAX_DEPTH): JsonValue {
  // A level takes two characters, so a short text cannot be deep.
  if (text.length > 2 * maxDepth) checkDepth(text, maxDepth);
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch (error) {
    throw new StrictJsonError(`not valid JSON: ${(error as Error).message}`);
  }
  // Text that survives a round trip has no duplicate key and no overflow. Escaped surrogates and even integers
  // beyond 2^53 survive it, too, so they are looked at apart.
  if (JSON.stringify(value) !== text || text.includes("\\ud") || hasLongDigits(text)) scan(text);
  return value;
}

/** Digits in a string are text, and a long text is mostly one string: only what lies between strings is looked at. */
function hasLongDigits(text: string): boolean {
  if (text.length < SHORT) return LONG_DIGITS.test(text);
  for (let from = 0; ; ) {
    const quote = text.indexOf('"', from);
    if (LONG_DIGITS.test(text.slice(from, quote === -1 ? text.length : quote))) return true;
    if (quote === -1) return false;
    from = endOfString(text, quote) + 1;
  }
}

/** Depth is counted on the text because parsing first and checking later would already have paid for it. */
function checkDepth(text: string, maxDepth: number): void {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) {
      i = endOfString(text, i);
    } else if (c === 0x7b || c === 0x5b) {
      if (++depth > maxDepth) throw new StrictJsonError(`nesting is deeper than ${maxDepth} levels`, i);
    } else if (c === 0x7d || c === 0x5d) {
      depth--;
    }
  }
}

/** Index of the closing quote of the string that opens at `start` (or the end of the text when it never closes). */
function endOfString(text: string, start: number): number {
  let i = start;
  for (;;) {
    i = text.indexOf('"', i + 1);
    if (i === -1) return text.length;
    let slashes = 0;
    while (text.charCodeAt(i - 1 - slashes) === 0x5c) slashes++;
    if (slashes % 2 === 0) return i;
  }
}

const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;

/** The slow look at text that did not survive a round trip. INVARIANT: `text` is valid JSON of bounded depth. */
function scan(text: string): void {
  const keys: (Set<string> | null)[] = [];
  let expectKey = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) {
      const end = endOfString(text, i);
      const raw = text.slice(i, end + 1);
      if (raw.includes("\\u")) checkSurrogates(raw, i);
      const seen = keys.at(-1);
      if (expectKey && seen) {
        const key = JSON.parse(raw) as string;
        if (seen.has(key)) throw new StrictJsonError(`duplicate key ${raw}`, i);
        seen.add(key);
        expectKey = false;
      }
      i = end;
    } else if (c === 0x7b) {
      keys.push(new Set());
      expectKey = true;
    } else if (c === 0x5b) {
      keys.push(null);
      expectKey = false;
    } else if (c === 0x7d || c === 0x5d) {
      keys.pop();
      expectKey = false;
    } else if (c === 0x2c) {
      expectKey = keys.at(-1) != null;
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      NUMBER.lastIndex = i;
      const match = NUMBER.exec(text);
      if (match) {
        checkNumber(match, i);
        i += match[0].length - 1;
      }
    }
  }
}

function checkSurrogates(raw: string, at: number): void {
  if (!(JSON.parse(raw) as string).isWellFormed()) {
    throw new StrictJsonError("a string contains a lone surrogate, which has no UTF-8 form", at);
  }
}

function checkNumber(match: RegExpExecArray, at: number): void {
  const value = Number(match[0]);
  if (!Number.isFinite(value)) throw new StrictJsonError(`number ${clip(match[0])} is out of range`, at);
  const integerLiteral = match[1] === undefined && match[2] === undefined;
  if (integerLiteral && !Number.isSafeInteger(value)) {
    throw new StrictJsonError(
      `integer ${clip(match[0])} is beyond ±(2^53−1) and would lose digits; send it as a string`,
      at,
    );
  }
}

function clip(text: string): string {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
