// Strict JSON. A gate that reads a message one way while the tool behind it reads the same bytes another way is not at at a
// gate, so whatever two parsers could disagree about is refused: duplicate keys, integers that lose digits,
// lone surrogates, numbers that overflow, nesting without end.

export type JsonPrimitive = string | number | boolean | null;
export type JsonValue = JsonPrimitive | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue;
}

/** Nesting that any honest message stays far below; `JSON.stringify` recurses, so depth must be bounded first. */
export const DEFAULT_MAX_DEPTH = 128;

/** Values in one message. Each costs an object, a comparison and a place in the canonical text, however small it is. */
export const DEFAULT_MAX_VALUES = 50_000;

/** What a parsed value costs in memory, measured over many forms of JSON: empty arrays and small objects cost most. */
const VALUE_BYTES = 48;

/** `parsedBytes` is what the values cost that were parsed of a text; the text itself comes on top where it is kept. */
export function parsedBytes(chars: number, values: number): number {
  return chars + VALUE_BYTES * values;
}

/** `valuesIn` counts as the limits do: every object, every array and every comma. INVARIANT: `text` is valid JSON. */
export function valuesIn(text: string): number {
  let values = 1;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) i = endOfString(text, i);
    else if (c === 0x7b || c === 0x5b || c === 0x2c) values++;
  }
  return values;
}

/** The same count over what was parsed. INVARIANT: its depth is bounded. */
export function valuesOf(value: JsonValue | undefined): number {
  if (typeof value !== "object" || value === null) return 1;
  let values = 1;
  for (const each of Array.isArray(value) ? value : Object.values(value)) values += valuesOf(each);
  return values;
}

export class StrictJsonError extends Error {
  readonly code = "PARSE_ERROR";
  readonly offset: number;
  constructor(reason: string, offset = 0) {
    super(reason);
    this.name = "StrictJsonError";
    this.offset = offset;
  }
}

/** Not JSON at all: nothing in such a text can be relied on. */
export class NotJsonError extends StrictJsonError {}

/** `TooManyValuesError` refuses a text that would cost more to read than a message may. */
export class TooManyValuesError extends StrictJsonError {}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const LONG_DIGITS = /[0-9]{16}/;
/** Below this the plain search is quicker than looking for strings. */
const SHORT = 4096;

export function parseStrict(
  text: string,
  maxDepth: number = DEFAULT_MAX_DEPTH,
  maxValues: number = DEFAULT_MAX_VALUES,
): JsonValue {
  // A level takes two characters and so does a value, so a short text has few of either.
  if (text.length > 2 * Math.min(maxDepth, maxValues)) checkSize(text, maxDepth, maxValues);
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch (error) {
    throw new NotJsonError(`not valid JSON: ${(error as Error).message}`);
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

/** Counted on the text because parsing first and checking later would already have paid for it. */
function checkSize(text: string, maxDepth: number, maxValues: number): void {
  let depth = 0;
  let values = 1;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) {
      i = endOfString(text, i);
    } else if (c === 0x7b || c === 0x5b) {
      if (++depth > maxDepth) throw new StrictJsonError(`nesting is deeper than ${maxDepth} levels`, i);
      values++;
    } else if (c === 0x7d || c === 0x5d) {
      depth--;
    } else if (c === 0x2c) {
      values++;
    }
    if (values > maxValues) {
      throw new TooManyValuesError(`the message has more than ${maxValues} values; send less at once`, i);
    }
  }
}

/** Index of the closing quote of the string that opens at `start` (or the end of the text when it never closes). */
export function endOfString(text: string, start: number): number {
  const quote = text.indexOf('"', start + 1);
  if (quote === -1) return text.length;
  if (text.charCodeAt(quote - 1) !== 0x5c) return quote;
  // From here on character by character: a search for each of a million escaped quotes costs far more.
  for (let i = start + 1; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) return i;
    if (c === 0x5c) i++;
  }
  return text.length;
}

/** What a member of an object can be followed by, without looking into it. */
const SPACE = /[\t\n\r ]*/y;
const SCALAR = /[-+.0-9a-zA-Z]+/y;
const MAX_ID_CHARS = 1024;

/**
 * `requestIdIn` reads the id of a request from a text that is refused as a whole, or from its beginning. Undefined when it has no
 * method (an answer's id is not the sender's), two ids, or an id that cannot be sent back.
 */
export function requestIdIn(text: string): string | number | undefined {
  let id: string | undefined;
  let isRequest = false;
  let at = skip(SPACE, text, 0);
  if (text[at] !== "{") return undefined;
  while (text[at] === "{" || text[at] === ",") {
    at = skip(SPACE, text, at + 1);
    const keyEnd = text[at] === '"' ? endOfString(text, at) : text.length;
    const start = skip(SPACE, text, skip(SPACE, text, keyEnd + 1) + 1);
    const end = endOfValue(text, start);
    if (end >= text.length) break;
    const key = text.slice(at, keyEnd + 1);
    if (key === '"method"') isRequest = text[start] === '"';
    // Any other spelling of the same name would be a second one.
    if (key === '"id"' || (key.includes("\\") && unquote(key) === "id")) {
      if (id !== undefined) return undefined;
      id = text.slice(start, end);
    }
    at = skip(SPACE, text, end);
  }
  const value = id === undefined || !isRequest || id.length > MAX_ID_CHARS ? undefined : unquote(id);
  if (typeof value === "string") return value.isWellFormed() ? value : undefined;
  return Number.isSafeInteger(value) ? (value as number) : undefined;
}

function skip(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  return pattern.test(text) ? pattern.lastIndex : from;
}

/** Index after the value that begins at `start`, the length of the text when it does not end. */
function endOfValue(text: string, start: number): number {
  if (text[start] !== "{" && text[start] !== "[" && text[start] !== '"') return skip(SCALAR, text, start);
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) i = endOfString(text, i);
    else if (c === 0x7b || c === 0x5b) depth++;
    else if (c === 0x7d || c === 0x5d) depth--;
    if (depth === 0) return i + 1;
  }
  return text.length;
}

function unquote(raw: string): unknown {
  try {
    return JSON.parse(raw);
  } catch {
    return undefined;
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
        const key = raw.includes("\\") ? (JSON.parse(raw) as string) : raw.slice(1, -1);
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

export interface Unsendable {
  /** JSON Pointer; "" is the value itself. */
  readonly path: string;
  readonly reason: string;
}

/** Bounded by `maxDepth`, so a value that holds itself is found, too. */
export function unsendable(value: unknown, maxDepth: number): Unsendable | undefined {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? undefined : LONE_SURROGATE;
    case "number":
      return numberProblem(value);
    case "boolean":
      return undefined;
    case "object":
      if (value === null) return undefined;
      if (maxDepth <= 0) return here("is nested too deeply");
      return Array.isArray(value) ? inItems(value, maxDepth) : inMembers(value, maxDepth);
    default:
      return here(`a value of type ${typeof value} has no JSON form`);
  }
}

const LONE_SURROGATE = here("the text holds a lone surrogate, which has no UTF-8 form");

function numberProblem(value: number): Unsendable | undefined {
  if (Number.isSafeInteger(value)) return undefined;
  if (!Number.isFinite(value)) return here(`${value} has no JSON form`);
  // From 1e21 on numbers are written with an exponent, which promises no digits.
  if (!Number.isInteger(value) || Math.abs(value) >= 1e21) return undefined;
  return here(`the integer ${value} is beyond ±(2^53−1) and would lose digits; send it as a string`);
}

function inItems(items: readonly unknown[], maxDepth: number): Unsendable | undefined {
  for (let at = 0; at < items.length; at++) {
    const found = unsendable(items[at], maxDepth - 1);
    if (found) return under(String(at), found);
  }
  return undefined;
}

function inMembers(object: object, maxDepth: number): Unsendable | undefined {
  const { toJSON } = object as { toJSON?: unknown };
  if (typeof toJSON === "function") return unsendable(toJSON.call(object), maxDepth - 1);
  for (const key of Object.keys(object)) {
    if (!key.isWellFormed()) return under(key.toWellFormed(), LONE_SURROGATE);
    const member = (object as Record<string, unknown>)[key];
    // A member that is undefined is left out, as everyone expects.
    const found = member === undefined ? undefined : unsendable(member, maxDepth - 1);
    if (found) return under(key, found);
  }
  return undefined;
}

function here(reason: string): Unsendable {
  return { path: "", reason };
}

function under(key: string, { path, reason }: Unsendable): Unsendable {
  return { path: `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}${path}`, reason };
}
