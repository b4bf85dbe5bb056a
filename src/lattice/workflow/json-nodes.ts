import { Pair, Scalar, YAMLMap, YAMLSeq } from "yaml";

type JsonNode = Scalar | YAMLMap | YAMLSeq;

const MAX_DEPTH = 200;
const WHITE = /[ \t\r\n]*/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[\da-fA-F]{4})*"/y;
const OTHER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/**
 * The nodes of a JSON text with their places, as the YAML parser would make them and many times faster: generated
 * workflows are large. Undefined for anything that is not plain JSON, which the YAML parser then reads or explains.
 */
export function jsonNodes(text: string): JsonNode | undefined {
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

  whole(): JsonNode | undefined {
    try {
      const node = this.#value(0);
      this.#skip();
      return this.#at === this.#text.length ? node : undefined;
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

  #value(depth: number): JsonNode {
    if (depth > MAX_DEPTH) throw new NotJson();
    this.#skip();
    const start = this.#at;
    const node = this.#node(depth);
    node.range = [start, this.#at, this.#at];
    return node;
  }

  #node(depth: number): JsonNode {
    switch (this.#text[this.#at]) {
      case "{":
        return this.#map(depth);
      case "[":
        return this.#list(depth);
      case '"':
        return new Scalar(JSON.parse(this.#matched(TEXT)));
      default:
        return new Scalar(JSON.parse(this.#matched(OTHER)));
    }
  }

  #map(depth: number): YAMLMap {
    const map = new YAMLMap();
    this.#at++;
    if (this.#take("}")) return map;
    do {
      this.#skip();
      if (this.#text[this.#at] !== '"') throw new NotJson();
      const key = this.#value(depth + 1);
      if (!this.#take(":")) throw new NotJson();
      // Names that come twice are kept, so that they can be reported.
      map.items.push(new Pair(key, this.#value(depth + 1)));
    } while (this.#take(","));
    if (!this.#take("}")) throw new NotJson();
    return map;
  }

  #list(depth: number): YAMLSeq {
    const list = new YAMLSeq();
    this.#at++;
    if (this.#take("]")) return list;
    do list.items.push(this.#value(depth + 1));
    while (this.#take(","));
    if (!this.#take("]")) throw new NotJson();
    return list;
  }
}
