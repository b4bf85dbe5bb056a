/** A part of a JSON text and where it begins. Small on purpose: a large workflow has millions of them. */
export type JsonPart = JsonScalar | JsonMap | JsonList;

export class JsonScalar {
  readonly value: unknown;
  readonly at: number;

  constructor(value: unknown, at: number) {
    this.value = value;
    this.at = at;
  }
}

/** Names that come twice are kept, so that they can be reported. */
export class JsonMap {
  readonly names: string[] = [];
  readonly places: number[] = [];
  readonly values: JsonPart[] = [];
  readonly at: number;

  constructor(at: number) {
    this.at = at;
  }
}

export class JsonList {
  readonly items: JsonPart[] = [];
  readonly at: number;

  constructor(at: number) {
    this.at = at;
  }
}

export function isJsonPart(part: unknown): part is JsonPart {
  return part instanceof JsonScalar || part instanceof JsonMap || part instanceof JsonList;
}

/** As a JSON value; of names that come twice the last counts. */
export function plainValue(part: JsonPart): unknown {
  if (part instanceof JsonScalar) return part.value;
  if (part instanceof JsonList) return part.items.map(plainValue);
  const object: Record<string, unknown> = {};
  for (const [i, name] of part.names.entries()) {
    const value = plainValue(part.values[i] as JsonPart);
    if (name !== "__proto__") object[name] = value;
    else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  }
  return object;
}

const MAX_DEPTH = 200;
const WHITE = /[ \t\r\n]*/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[\da-fA-F]{4})*"/y;
const OTHER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/**
 * The parts of a JSON text, many times faster than the YAML parser reads it. Undefined for anything that is not plain
 * JSON, which the YAML parser then reads or explains.
 */
export function jsonParts(text: string): JsonPart | undefined {
  if (!/^\s*\{/.test(text)) return undefined;
  return new JsonReader(text).whole();
}

class NotJson extends Error {}

class JsonReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): JsonPart | undefined {
    try {
      const part = this.#value(0);
      this.#skip();
      return this.#at === this.#text.length ? part : undefined;
    } catch (error) {
      if (error instanceof NotJson) return undefined;
      throw error;
    }
  }

  #skip(): void {
    // Most values follow each other without any space.
    if (this.#text.charCodeAt(this.#at) > 32) return;
    WHITE.lastIndex = this.#at;
    WHITE.test(this.#text);
    this.#at = WHITE.lastIndex;
  }

  #take(character: string): boolean {
    this.#skip();
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #matched(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    if (!pattern.test(this.#text)) throw new NotJson();
    const found = this.#text.slice(this.#at, pattern.lastIndex);
    this.#at = pattern.lastIndex;
    return found;
  }

  #quoted(): string {
    const found = this.#matched(TEXT);
    return JSON.parse(found) as string;
  }

  #value(depth: number): JsonPart {
    if (depth > MAX_DEPTH) throw new NotJson();
    this.#skip();
    const at = this.#at;
    switch (this.#text[at]) {
      case "{":
        return this.#map(at, depth);
      case "[":
        return this.#list(at, depth);
      case '"':
        return new JsonScalar(this.#quoted(), at);
      default:
        return new JsonScalar(JSON.parse(this.#matched(OTHER)), at);
    }
  }

  #map(at: number, depth: number): JsonMap {
    const map = new JsonMap(at);
    this.#at++;
    if (this.#take("}")) return map;
    do {
      this.#skip();
      map.places.push(this.#at);
      map.names.push(this.#quoted());
      if (!this.#take(":")) throw new NotJson();
      map.values.push(this.#value(depth + 1));
    } while (this.#take(","));
    if (!this.#take("}")) throw new NotJson();
    return map;
  }

  #list(at: number, depth: number): JsonList {
    const list = new JsonList(at);
    this.#at++;
    if (this.#take("]")) return list;
    do list.items.push(this.#value(depth + 1));
    while (this.#take(","));
    if (!this.#take("]")) throw new NotJson();
    return list;
  }
}
