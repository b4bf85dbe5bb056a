import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";
import { LatticeError, type LatticeErrorCode } from "../errors.js";

/** Some part of the file; only the document looks into it. */
export type Part = Node | JsonPart;

export interface DelegationEntry {
  readonly key: string;
  readonly value: Part | null;
  readonly line: number;
}

const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_PROBLEMS = 100;

/**
 * A YAML or JSON text with the line of every part, and the problems found in it so far. Reading continues after a
 * problem, so that the author sees all of them at once.
 */
export class WorkflowDocument {
  readonly root: Part | null;
  readonly problems: LatticeError[] = [];
  readonly #lines = new LineCounter();
  /** Absent for JSON, which needs none. */
  readonly #document: ReturnType<typeof parseDocument> | undefined;

  constructor(text: string) {
    if (text.length > MAX_CHARACTERS) {
      throw new LatticeError("LATTICE_TOO_LARGE", `a workflow file may have at most ${MAX_CHARACTERS} characters`);
    }
    const json = jsonParts(text);
    if (json !== undefined) {
      this.root = json;
      for (let start = 0; start !== -1; start = nextLine(text, start)) this.#lines.addNewLine(start);
      return;
    }
    // Keys are compared in `entries`: the parser's own check takes quadratic time.
    this.#document = parseDocument(text, { lineCounter: this.#lines, uniqueKeys: false, prettyErrors: false });
    for (const error of this.#document.errors) {
      this.report("LATTICE_SYNTAX", error.message, this.#lines.linePos(error.pos[0]).line);
    }
    this.root = this.#document.contents as Node | null;
  }

  report(code: LatticeErrorCode, message: string, line: number | undefined): void {
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(new LatticeError(code, message, line));
  }

  /** The first problem is thrown, with all the others in it. */
  throwIfAny(): void {
    const [first] = this.problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
    if (first === undefined) return;
    throw new LatticeError(
      first.code,
      first.text,
      first.line,
      this.problems.filter((problem) => problem !== first),
    );
  }

  lineOf(part: Part | null | undefined): number | undefined {
    const start = isJsonPart(part) ? part.at : part?.range?.[0];
    return start === undefined ? undefined : this.#lines.linePos(start).line;
  }

  #plain(part: Part | null): Part | null {
    if (isJsonPart(part) || this.#document === undefined) return part;
    return isAlias(part) ? (part.resolve(this.#document) ?? null) : part;
  }

  /** Names and values of a mapping, each with the line of its name; undefined when it is none. */
  #members(
    part: Part | null,
  ): { name: string | undefined; value: Part | null; line: number | undefined }[] | undefined {
    if (part instanceof JsonMap) {
      return part.names.map((name, i) => {
        const line = this.#lines.linePos(part.places[i] as number).line;
        return { name, value: part.values[i] as JsonPart, line };
      });
    }
    if (!isMap(part)) return undefined;
    return part.items.map(({ key, value }) => {
      const name = isScalar(key) ? String(key.value) : undefined;
      return { name, value: value as Node | null, line: this.lineOf(key as Node) };
    });
  }

  /** The members of a mapping; `what` names it in messages. An absent mapping has none. */
  entries(part: Part | null | undefined, what: string): DelegationEntry[] {
    if (part === undefined || part === null) return [];
    const members = this.#members(this.#plain(part));
    if (members === undefined) {
      this.report("LATTICE_SHAPE", `${what} must be a mapping`, this.lineOf(part));
      return [];
    }
    const seen = new Map<string, number>();
    return members.flatMap(({ name, value, line: at }) => {
      const line = at ?? this.lineOf(part) ?? 1;
      if (name === undefined) {
        this.report("LATTICE_SHAPE", `a name in ${what} must be plain text`, line);
        return [];
      }
      const before = seen.get(name);
      if (before !== undefined) {
        this.report("LATTICE_DUPLICATE", `\`${name}\` is in ${what} twice, first on line ${before}`, line);
        return [];
      }
      seen.set(name, line);
      return [{ key: name, value, line }];
    });
  }

  /** The entries of a mapping by name, where only these names make sense. */
  fields<Name extends string>(node: Part | null | undefined, what: string, names: readonly Name[]) {
    const found: { [key in Name]?: DelegationEntry } = {};
    for (const entry of this.entries(node, what)) {
      const name = names.find((known) => known === entry.key);
      if (name === undefined) {
        this.report(
          "LATTICE_SHAPE",
          `${what} has no field \`${entry.key}\`; it may have ${names.join(", ")}`,
          entry.line,
        );
      } else found[name] = entry;
    }
    return found;
  }

  items(node: Part | null | undefined, what: string): { readonly value: Part | null; readonly line: number }[] {
    if (node === undefined || node === null) return [];
    const list = this.#plain(node);
    const items = list instanceof JsonList ? list.items : isSeq(list) ? list.items : undefined;
    if (items === undefined) {
      this.report("LATTICE_SHAPE", `${what} must be a list`, this.lineOf(node));
      return [];
    }
    return items.map((value) => ({ value: value as Part | null, line: this.lineOf(value as Part) ?? 1 }));
  }

  strings(node: Part | null | undefined, what: string): { readonly text: string; readonly line: number }[] {
    return this.items(node, what).flatMap(({ value, line }) => {
      const text = this.text(value, `an entry of ${what}`);
      return text === undefined ? [] : [{ text, line }];
    });
  }

  /** The value of a scalar; undefined for anything else. */
  #scalar(part: Part | null | undefined): unknown {
    const plain = this.#plain(part ?? null);
    return plain instanceof JsonScalar || isScalar(plain) ? plain.value : undefined;
  }

  text(part: Part | null | undefined, what: string): string | undefined {
    const value = this.#scalar(part);
    if (typeof value === "string") return value;
    this.report("LATTICE_SHAPE", `${what} must be text`, this.lineOf(part));
    return undefined;
  }

  boolean(part: Part | null | undefined, what: string): boolean | undefined {
    const value = this.#scalar(part);
    if (typeof value === "boolean") return value;
    this.report("LATTICE_SHAPE", `${what} must be true or false`, this.lineOf(part));
    return undefined;
  }

  isMap(part: Part | null | undefined): boolean {
    const plain = this.#plain(part ?? null);
    return plain instanceof JsonMap || isMap(plain);
  }

  isSeq(part: Part | null | undefined): boolean {
    const plain = this.#plain(part ?? null);
    return plain instanceof JsonList || isSeq(plain);
  }

  /** Any part as a JSON value. */
  value(part: Part | null | undefined): unknown {
    if (isJsonPart(part)) return plainValue(part);
    if (this.#document === undefined) return undefined;
    try {
      return part?.toJS(this.#document, { maxAliasCount: 1_000 });
    } catch (error) {
      if (!(error instanceof ReferenceError)) throw error;
      this.report("LATTICE_TOO_LARGE", `aliases are nested too deeply: ${error.message}`, this.lineOf(part));
      return undefined;
    }
  }
}

/** Where the line after this one begins, or -1. */
function nextLine(text: string, start: number): number {
  const end = text.indexOf("\n", start);
  return end === -1 ? -1 : end + 1;
}

/** A part of a JSON text and where it begins. Small on purpose: a large workflow has millions of them. */
type JsonPart = JsonScalar | JsonMap | JsonList;

class JsonScalar {
  readonly value: unknown;
  readonly at: number;

  constructor(value: unknown, at: number) {
    this.value = value;
    this.at = at;
  }
}

/** Names that come twice are kept, so that they can be reported. */
class JsonMap {
  readonly names: string[] = [];
  readonly places: number[] = [];
  readonly values: JsonPart[] = [];
  readonly at: number;

  constructor(at: number) {
    this.at = at;
  }
}

class JsonList {
  readonly items: JsonPart[] = [];
  readonly at: number;

  constructor(at: number) {
    this.at = at;
  }
}

function isJsonPart(part: unknown): part is JsonPart {
  return part instanceof JsonScalar || part instanceof JsonMap || part instanceof JsonList;
}

/** As a JSON value; of names that come twice the last counts. */
function plainValue(part: JsonPart): unknown {
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
