// The credential that a message carries itself, for transports without headers. It is found by one look over the text,
// which costs the same for every text; nothing else of the message is parsed before the caller is known.

import { DELEGATION_META } from "../auth/index.js";
import { DEFAULT_MAX_VALUES, endOfString, type JsonObject, type JsonValue } from "../mcp/index.js";

export interface Claim {
  readonly auth: JsonValue | undefined;
  /** Of `params._meta`, what says who is calling. */
  readonly meta: JsonObject | undefined;
}

const MAX_VALUE_CHARS = 32 * 1024;
const MAX_KEY_CHARS = 64;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** No credential has this form: a message whose claim is ambiguous is of an unknown caller. */
const NOBODY: Claim = { auth: false, meta: undefined };

/** Undefined when the text carries none. A batch has one claim for all of its messages. */
export function claimIn(text: string, maxValues: number = DEFAULT_MAX_VALUES): Claim | undefined {
  if (!text.includes('"auth"') && !text.includes("portcullis\\/") && !text.includes("portcullis/")) return undefined;
  const claims = new Claims(text, maxValues);
  try {
    claims.look();
    return claims.claim();
  } catch {
    return NOBODY;
  }
}

/** Where a value stands that is part of the claim. */
interface Found {
  auth: string | undefined;
  delegation: string | undefined;
}

class Claims {
  readonly #text: string;
  readonly #maxValues: number;
  readonly #messages: Found[] = [];
  /** The keys on the way to the value being read; "" where it is in an array. */
  readonly #path: string[] = [];
  readonly #isObject: boolean[] = [];

  constructor(text: string, maxValues: number) {
    this.#text = text;
    this.#maxValues = maxValues;
  }

  claim(): Claim | undefined {
    const [first, ...others] = this.#messages;
    if (!first) return undefined;
    const isSame = (each: Found): boolean => each.auth === first.auth && each.delegation === first.delegation;
    if (!others.every(isSame)) return NOBODY;
    if (first.auth === undefined && first.delegation === undefined) return undefined;
    const value = (found: string | undefined): JsonValue | undefined =>
      found === undefined ? undefined : (JSON.parse(found) as JsonValue);
    const delegation = value(first.delegation);
    return { auth: value(first.auth), meta: delegation === undefined ? undefined : { [DELEGATION_META]: delegation } };
  }

  look(): void {
    const text = this.#text;
    let expectsKey = false;
    let values = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c === QUOTE) {
        const end = endOfString(text, i);
        if (expectsKey) {
          this.#path[this.#path.length - 1] = keyAt(text, i, end);
          expectsKey = false;
          this.#valueAfter(end);
        }
        i = end;
      } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
        expectsKey = c === OPEN_OBJECT;
        values++;
        this.#path.push("");
        this.#isObject.push(expectsKey);
        if (expectsKey && this.#depth() === 1) this.#messages.push({ auth: undefined, delegation: undefined });
      } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
        this.#path.pop();
        this.#isObject.pop();
        expectsKey = false;
      } else if (c === COMMA) {
        expectsKey = this.#isObject.at(-1) === true;
        values++;
      }
      // The caller is not known yet, so nothing may cost much. Such a message is refused whoever sent it.
      if (values > this.#maxValues) throw new SyntaxError("too many values");
    }
  }

  /** Of the message being read, whether or not it is in a batch. */
  #depth(): number {
    return this.#isObject[0] === false ? this.#path.length - 1 : this.#path.length;
  }

  #valueAfter(endOfKey: number): void {
    const depth = this.#depth();
    if (depth !== 1 && depth !== 3) return;
    const [first, second, third] = this.#path.slice(-depth);
    const message = this.#messages.at(-1);
    if (!message) return;
    if (depth === 1 && first === "auth") {
      if (message.auth !== undefined) throw new SyntaxError("two credentials");
      message.auth = valueFrom(this.#text, endOfKey + 1);
    } else if (depth === 3 && first === "params" && second === "_meta" && third === DELEGATION_META) {
      if (message.delegation !== undefined) throw new SyntaxError("two delegations");
      message.delegation = valueFrom(this.#text, endOfKey + 1);
    }
  }
}

/** The text of the value after the colon, without the space around it. */
function valueFrom(text: string, afterKey: number): string {
  const start = text.indexOf(":", afterKey) + 1;
  const most = Math.min(text.length, start + MAX_VALUE_CHARS);
  let depth = 0;
  for (let i = start; i < most; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) i = endOfString(text, i);
    else if (c === OPEN_OBJECT || c === OPEN_ARRAY) depth++;
    else if (c === COMMA && depth === 0) return text.slice(start, i).trim();
    else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
      if (depth-- === 0) return text.slice(start, i).trim();
    }
  }
  throw new SyntaxError("the credential is too long");
}

function keyAt(text: string, start: number, end: number): string {
  if (end - start > MAX_KEY_CHARS) return "";
  const raw = text.slice(start + 1, end);
  return raw.includes("\\") ? (JSON.parse(`"${raw}"`) as string) : raw;
}
