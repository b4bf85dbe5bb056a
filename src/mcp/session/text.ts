// Messages as texts. Out: spliced from pieces that were decided about, never built anew. In: parsed once to be
// checked, and the part that travels on is cut out of what the server wrote.

import { type Classified, classify, endOfString, isJsonObject, type JsonValue } from "../index.js";
import { tooLarge } from "./faults.js";

/** INVARIANT: `params` is the text of an object, `metaInside` the inside of one. */
export function requestText(id: number, method: string, params: string, metaInside: string): string {
  const head = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":`;
  if (metaInside === "") return `${head}${params}}`;
  const open = params.length <= 2 ? "{" : `${params.slice(0, -1)},`;
  return `${head}${open}"_meta":{${metaInside}}}}`;
}

/** The text, unless it is over the limit. */
export function boundedText(server: string, maxBytes: number, text: string): string {
  // A UTF-16 unit is at most three bytes, so most texts need no count.
  if (text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes) return text;
  throw tooLarge(server, `the request is over the limit of ${maxBytes} bytes`, false);
}

export function notificationText(method: string, params: string | undefined): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${params === undefined ? "" : `,"params":${params}`}}`;
}

export interface Received {
  readonly message: Classified;
  /** What the server wrote for `result` or `error`. */
  readonly text: string;
  /** Values in the whole message. */
  readonly values: number;
}

/**
 * Throws a SyntaxError when the text is not JSON or too deep. A key that stands twice in the message, or in its
 * result, is read one way here and maybe another way by its receiver: then the text is written again.
 */
export function readMessage(
  text: string,
  maxDepth: number,
  maxValues: number = MAX_LIST_VALUES,
): Received | readonly Received[] {
  const span = outline(text, maxDepth, maxValues);
  const { values } = span;
  const value = JSON.parse(text) as JsonValue;
  if (Array.isArray(value)) return value.map((item) => ({ message: classify(item), text: partOf(item), values }));
  const faithful = span.start !== -1 && !span.twice;
  return { message: classify(value), text: faithful ? text.slice(span.start, span.end).trim() : partOf(value), values };
}

function partOf(value: JsonValue): string {
  if (!isJsonObject(value)) return "null";
  return JSON.stringify(value.result ?? value.error ?? null);
}

interface Outline {
  start: number;
  end: number;
  twice: boolean;
  values: number;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Values in a message of a server, which is refused before it is parsed when it has more: reading it takes as long. */
export const MAX_ANSWER_VALUES = 100_000;
/** The same while a list is being read: some servers send thousands of tools at once. */
export const MAX_LIST_VALUES = 400_000;

/** One look over the text: how deep it is, where `result` or `error` stands, whether a key of the two outer levels repeats. */
function outline(text: string, maxDepth: number, maxValues: number): Outline {
  const found: Outline = { start: -1, end: -1, twice: false, values: 0 };
  let depth = 0;
  let values = 0;
  let expectKey = false;
  let wanted = false;
  let outer: Set<string> | undefined;
  let inner: Set<string> | undefined;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      const end = endOfString(text, i);
      if (expectKey && depth <= 2) {
        const key = keyAt(text, i, end);
        const keys = depth === 1 ? (outer ??= new Set()) : (inner ??= new Set());
        if (keys.has(key)) found.twice = true;
        keys.add(key);
        if (depth === 1) wanted = key === "result" || key === "error";
        expectKey = false;
      }
      i = end;
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      if (++depth > maxDepth) throw new TooDeep(`nesting is deeper than ${maxDepth} levels`);
      if (++values > maxValues) throw tooManyValues(maxValues);
      expectKey = c === OPEN_OBJECT;
      if (depth === 2) inner = undefined;
    } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
      depth--;
      expectKey = false;
      if (depth === 0 && wanted) {
        found.end = i;
        wanted = false;
      }
    } else if (c === COMMA) {
      if (++values > maxValues) throw tooManyValues(maxValues);
      if (depth === 1) {
        if (wanted) found.end = i;
        wanted = false;
        expectKey = true;
      } else if (depth === 2) {
        // In an array a string after a comma is taken for a key here, and may be taken for one that repeats: then the
        // text is written anew, which is never wrong.
        expectKey = true;
      }
    } else if (c === COLON && depth === 1 && wanted && found.start === -1) {
      found.start = i + 1;
    }
  }
  found.values = values;
  return found;
}

/** `TooDeep` refuses a message that is well-formed as far as it was read. */
export class TooDeep extends SyntaxError {}

/** `TooManyValues` refuses a message that was not read: which call it answers is known from its beginning at most. */
export class TooManyValues extends SyntaxError {}

function tooManyValues(maxValues: number): TooManyValues {
  return new TooManyValues(`the message has more than ${maxValues} values`);
}

function keyAt(text: string, start: number, end: number): string {
  const raw = text.slice(start + 1, end);
  if (!raw.includes("\\")) return raw;
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    // No JSON at all, as the parser will find in a moment.
    return raw;
  }
}
