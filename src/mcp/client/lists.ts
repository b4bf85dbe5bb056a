// Lists come in pages and may be fresh for a while. Both are outside data, so both are bounded.

import { isJsonObject, type JsonObject } from "../index.js";
import { ProtocolError } from "./errors.js";

interface ListLimits {
  maxPages: number;
  maxItems: number;
}

interface WholeList {
  items: JsonObject[];
  /** When the first of its pages goes stale, on the clock of `performance.now()`. */
  freshUntil: number;
}

/** A server cannot make us believe in a list for longer than this. */
const MAX_TTL_MS = 24 * 3_600_000;

/** Follows the cursors to the end. */
export async function readPages(
  method: string,
  key: string,
  limits: ListLimits,
  page: (params: JsonObject) => Promise<JsonObject>,
): Promise<WholeList> {
  const items: JsonObject[] = [];
  const seen = new Set<string>();
  let freshUntil = Number.POSITIVE_INFINITY;
  let cursor: string | undefined;
  for (let pages = 0; pages < limits.maxPages; pages++) {
    const result = await page(cursor === undefined ? {} : { cursor });
    const entries = result[key];
    if (!Array.isArray(entries)) throw malformed(method, `\`${key}\` is not an array`);
    for (const entry of entries) {
      if (!isJsonObject(entry)) throw malformed(method, `an entry of \`${key}\` is not an object`);
      items.push(entry);
    }
    if (items.length > limits.maxItems) throw tooLong(method, `${limits.maxItems} entries`, "maxItems");
    freshUntil = Math.min(freshUntil, performance.now() + ttlOf(result));
    if (result.nextCursor === undefined || result.nextCursor === null) return { items, freshUntil };
    if (typeof result.nextCursor !== "string") throw malformed(method, "`nextCursor` is not a string");
    if (seen.has(result.nextCursor)) throw malformed(method, "a cursor came twice, so the list has no end");
    cursor = result.nextCursor;
    seen.add(cursor);
  }
  throw tooLong(method, `${limits.maxPages} pages`, "maxPages");
}

export function ttlOf(result: JsonObject): number {
  const { ttlMs } = result;
  return typeof ttlMs === "number" && ttlMs > 0 ? Math.min(ttlMs, MAX_TTL_MS) : 0;
}

function malformed(method: string, what: string): ProtocolError {
  return new ProtocolError("InvalidRequest", `the server's answer to ${method} is malformed: ${what}`);
}

function tooLong(method: string, what: string, limit: string): ProtocolError {
  return new ProtocolError(
    "TooLarge",
    `the server's answer to ${method} is longer than ${what}; raise limits.${limit}`,
  );
}

/** One list, remembered while it is fresh. Callers that come while it is being read share the reading. */
export class CachedList {
  readonly #read: () => Promise<WholeList>;
  #list: WholeList | undefined;
  #reading: Promise<WholeList> | undefined;
  /** Counts readings and invalidations, so that a list that changed while it was being read is not taken for fresh. */
  #version = 0;
  constructor(read: () => Promise<WholeList>) {
    this.#read = read;
  }

  async get(fresh = false): Promise<JsonObject[]> {
    if (!fresh && this.#list && performance.now() < this.#list.freshUntil) return this.#list.items;
    if (fresh || !this.#reading) this.#reading = this.#readOnce();
    return (await this.#reading).items;
  }

  invalidate(): void {
    this.#version++;
    this.#reading = undefined;
    this.#list = undefined;
  }

  #readOnce(): Promise<WholeList> {
    const version = ++this.#version;
    const over = (list?: WholeList): void => {
      if (version !== this.#version) return;
      this.#reading = undefined;
      this.#list = list;
    };
    const reading = this.#read();
    reading.then(over, () => over());
    return reading;
  }
}
