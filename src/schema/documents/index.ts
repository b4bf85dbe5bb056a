// Schema documents as data: dialects, where keywords hold schemas, what references point at, which values are equal, and
// the characters in a pattern. Nothing is ever fetched.

import type { AST } from "@eslint-community/regexpp";
import type { CharSet, JS } from "refa";

export type Dialect = "draft-07" | "2020-12";

const DIALECTS: ReadonlyMap<unknown, Dialect> = new Map([
  ["json-schema.org/draft-07/schema", "draft-07"],
  ["json-schema.org/draft/2020-12/schema", "2020-12"],
]);

/** `knownDialect` returns the dialect that a value of `$schema` names; undefined for one that is not known here. */
export function knownDialect(declared: unknown): Dialect | undefined {
  return typeof declared === "string"
    ? DIALECTS.get(declared.replace(/^https?:\/\//, "").replace(/#$/, ""))
    : undefined;
}

/** `escapePointer` writes a key as one step of a JSON Pointer (RFC 6901). */
export function escapePointer(key: string): string {
  return key.includes("~") || key.includes("/") ? key.replaceAll("~", "~0").replaceAll("/", "~1") : key;
}

export function unescapePointer(token: string): string {
  return token.replaceAll("~1", "/").replaceAll("~0", "~");
}

interface Budget {
  spend(steps: number): void;
}

/** A key is written for each value, and sorted with others. */
const STEPS_PER_VALUE = 8;

/** Each level is copied into the one around it. */
function charged(key: string, run: Budget | undefined): string {
  run?.spend(key.length >> 4);
  return key;
}

/**
 * `equalityKey` is the same text for values that JSON Schema calls equal, and for no others: 1 and 1.0 are equal, the order
 * of an object's keys does not matter. Strings and objects cannot collide: objects start with a brace.
 */
export function equalityKey(value: unknown, run?: Budget): string {
  run?.spend(STEPS_PER_VALUE);
  if (Array.isArray(value)) return charged(`[${value.map((item) => equalityKey(item, run)).join()}]`, run);
  if (typeof value === "object" && value !== null) {
    const members = Object.keys(value)
      .sort()
      .map((name) => `${JSON.stringify(name)}:${equalityKey((value as Record<string, unknown>)[name], run)}`);
    return charged(`{${members.join()}}`, run);
  }
  if (typeof value === "string") run?.spend(value.length >> 4);
  // JSON has one zero; JavaScript has two that print alike.
  return JSON.stringify(value) ?? "null";
}

const HOLDS_ONE = keywords(
  "not if then else contains additionalProperties propertyNames items contentSchema",
  "additionalItems unevaluatedItems unevaluatedProperties",
);
const HOLDS_LIST = keywords("allOf anyOf oneOf prefixItems items");
const HOLDS_NAMED = keywords("properties patternProperties $defs definitions dependentSchemas dependencies");

function keywords(...lines: string[]): ReadonlySet<string> {
  return new Set(lines.flatMap((line) => line.split(" ")));
}

/** `subschemas` yields the values of a keyword that stand where a schema is expected, each with its path below the schema. */
export function* subschemas(keyword: string, value: unknown): Iterable<[path: readonly string[], value: unknown]> {
  if (Array.isArray(value)) {
    if (!HOLDS_LIST.has(keyword)) return;
    for (const [index, item] of value.entries()) yield [[keyword, String(index)], item];
  } else if (HOLDS_NAMED.has(keyword)) {
    if (typeof value !== "object" || value === null) return;
    for (const [name, item] of Object.entries(value)) yield [[keyword, name], item];
  } else if (HOLDS_ONE.has(keyword)) yield [[keyword], value];
}

/** The address of a document that names none. */
export const HOME = "https://schema.invalid/";

type SchemaObject = Readonly<Record<string, unknown>>;

/** `ResourceRules` are the bounds of a document and what its reader checks on the way; a method throws the reader's error. */
export interface ResourceRules {
  readonly maxDepth: number;
  readonly maxValues: number;
  exceeded(limit: "maxDepth" | "maxValues", max: number, pointer: string): never;
  /** Called for every value. */
  value?(value: unknown, pointer: string): void;
  /** Called for every object where a schema is expected, before its identifiers are read. */
  schema?(schema: SchemaObject, pointer: string): void;
  /** Called when two schemas have one identifier; without it the later one counts. */
  repeated?(name: string, pointer: string, other: string): void;
}

interface Item {
  readonly value: unknown;
  readonly base: string;
  readonly pointer: string;
  readonly depth: number;
  readonly isSchema: boolean;
}

export interface FoundValue {
  readonly value: unknown;
  /** The address that relative references around the value start from. */
  readonly base: string;
  readonly pointer: string;
}

/** `SchemaResources` indexes a document: the resources and anchors in it, and the base and the place of every value. */
export class SchemaResources {
  readonly #dialect: Dialect;
  readonly #rules: ResourceRules;
  readonly #resources = new Map<string, object>();
  readonly #anchors = new Map<string, object>();
  readonly #dynamic = new Set<string>();
  readonly #bases = new Map<object, string>();
  readonly #pointers = new Map<object, string>();

  constructor(root: unknown, dialect: Dialect, rules: ResourceRules, address = HOME) {
    this.#dialect = dialect;
    this.#rules = rules;
    if (typeof root === "object" && root !== null) this.#resources.set(address, root);
    this.#index({ value: root, base: address, pointer: "", depth: 0, isSchema: true });
  }

  get hasDynamicAnchors(): boolean {
    return this.#dynamic.size > 0;
  }

  get hasSeveralResources(): boolean {
    return new Set(this.#resources.values()).size > 1;
  }

  addresses(): Iterable<string> {
    return this.#resources.keys();
  }

  /** The address that relative references in a value start from. */
  baseOf(value: unknown): string | undefined {
    return typeof value === "object" && value !== null ? this.#bases.get(value) : undefined;
  }

  pointerOf(value: object): string {
    return this.#pointers.get(value) ?? "";
  }

  isDynamic(address: string, fragment: string): boolean {
    return this.#dynamic.has(`${address}#${fragment}`);
  }

  /** What an address and a fragment point at in this document. */
  find(address: string, fragment: string): FoundValue | undefined {
    if (fragment !== "" && !fragment.startsWith("/")) {
      const anchored = this.#anchors.get(`${address}#${fragment}`);
      return anchored && { value: anchored, base: address, pointer: this.pointerOf(anchored) };
    }
    const resource = this.#resources.get(address);
    if (resource === undefined) return undefined;
    let value: unknown = resource;
    let base = address;
    for (const step of fragment === "" ? [] : fragment.slice(1).split("/")) {
      const key = unescapePointer(step);
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      base = this.#bases.get(value) ?? base;
      value = (value as SchemaObject)[key];
    }
    return value === undefined ? undefined : { value, base, pointer: this.pointerOf(resource) + fragment };
  }

  /** Iterative: the depth of a document is its author's choice. */
  #index(root: Item): void {
    const rules = this.#rules;
    const pending: Item[] = [root];
    let values = 0;
    for (let item = pending.pop(); item !== undefined; item = pending.pop()) {
      const { value, pointer, depth } = item;
      if (++values + pending.length > rules.maxValues) rules.exceeded("maxValues", rules.maxValues, pointer);
      if (depth > rules.maxDepth) rules.exceeded("maxDepth", rules.maxDepth, pointer);
      rules.value?.(value, pointer);
      if (typeof value !== "object" || value === null) continue;
      const isSchema = item.isSchema && !Array.isArray(value);
      this.#pointers.set(value, pointer);
      const base = isSchema ? this.#identify(value as SchemaObject, item.base, pointer) : item.base;
      this.#bases.set(value, base);
      for (const [key, inner] of Object.entries(value)) {
        const at = `${pointer}/${escapePointer(key)}`;
        const schemas = isSchema ? [...subschemas(key, inner)] : [];
        const isDirect = schemas.length === 1 && schemas[0]?.[0].length === 1;
        if (schemas.length === 0 || isDirect) {
          pending.push({ value: inner, base, pointer: at, depth: depth + 1, isSchema: isDirect });
          continue;
        }
        // A list or an object that holds schemas is not one itself.
        values++;
        rules.value?.(inner, at);
        this.#bases.set(inner as object, base);
        this.#pointers.set(inner as object, at);
        for (const [[, name = ""], schema] of schemas) {
          const pointer = `${at}/${escapePointer(name)}`;
          pending.push({ value: schema, base, pointer, depth: depth + 2, isSchema: true });
        }
      }
    }
  }

  #identify(schema: SchemaObject, base: string, pointer: string): string {
    this.#rules.schema?.(schema, pointer);
    let here = base;
    // In draft-07 nothing beside a `$ref` counts.
    if (typeof schema.$id === "string" && !(this.#dialect === "draft-07" && schema.$ref !== undefined)) {
      const { address, fragment } = splitReference(schema.$id, base);
      if (fragment === "") {
        here = address;
        this.#claim(this.#resources, here, schema, pointer);
      } else this.#claim(this.#anchors, `${address}#${fragment}`, schema, pointer);
    }
    if (this.#dialect === "2020-12") {
      for (const name of [schema.$anchor, schema.$dynamicAnchor]) {
        if (typeof name === "string") this.#claim(this.#anchors, `${here}#${name}`, schema, pointer);
      }
      if (typeof schema.$dynamicAnchor === "string") this.#dynamic.add(`${here}#${schema.$dynamicAnchor}`);
    }
    return here;
  }

  #claim(table: Map<string, object>, name: string, schema: object, pointer: string): void {
    const other = table.get(name);
    if (other !== undefined && other !== schema) this.#rules.repeated?.(name, pointer, this.pointerOf(other));
    table.set(name, schema);
  }
}

/** `splitReference` returns an absolute address without its fragment, and the fragment decoded. */
export function splitReference(reference: string, base: string): { address: string; fragment: string } {
  let url: URL;
  try {
    url = new URL(reference, base);
  } catch {
    return { address: reference, fragment: "" };
  }
  const fragment = url.hash.slice(1);
  url.hash = "";
  try {
    return { address: url.href, fragment: decodeURIComponent(fragment) };
  } catch {
    return { address: url.href, fragment };
  }
}

/**
 * `flagsFor` returns the flags that a pattern runs with: Unicode mode, as JSON Schema asks, or else the lenient syntax that
 * many published schemas are written in. Undefined when the engine rejects both.
 */
export function flagsFor(source: string): string | undefined {
  return ["u", ""].find((flags) => {
    try {
      return new RegExp(source, flags) !== undefined;
    } catch {
      return false;
    }
  });
}

export type SingleCharacter = AST.Character | AST.CharacterSet | AST.CharacterClass;

/** `charactersOf` returns the characters that one step of a pattern reads, or why they are not a set. Libraries are passed in. */
export function charactersOf(node: SingleCharacter, flags: JS.Flags, library: typeof JS): CharSet | string {
  const parts: (
    | number
    | { min: number; max: number }
    | Exclude<AST.CharacterSet, AST.StringsUnicodePropertyCharacterSet>
  )[] = [];
  for (const part of node.type === "CharacterClass" ? node.elements : [node]) {
    if (part.type === "Character") parts.push(part.value);
    else if (part.type === "CharacterClassRange") parts.push({ min: part.min.value, max: part.max.value });
    else if (part.type !== "CharacterSet") return `has an element ${part.type}`;
    else if (part.kind === "property" && part.strings) return "has a property of strings";
    else parts.push(part);
  }
  const set = library.createCharSet(parts, flags);
  return node.type === "CharacterClass" && node.negate ? set.negate() : set;
}
