// One schema document: its dialect, and what each reference in it points at. References never leave the document:
// a schema that could make us fetch something would decide for us whom we talk to.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import { SchemaError } from "./errors.js";
import type { JsonSchema } from "./types.js";
import { checkBounds, type SchemaLimits } from "./limits.js";
import { type Dialect, escapePointer, knownDialect, subschemas, unescapePointer } from "./documents/index.js";

/** A schema, the base its references count from, and its place in the document. */
export interface Located {
  readonly schema: JsonSchema;
  readonly base: string;
  readonly pointer: string;
}

const HOME = "schema:/";

export class SchemaDocument {
  readonly root: Located;
  readonly dialect: Dialect;
  /** Its author named no dialect: what an older one gave a meaning to is meant so. */
  readonly isUndeclared: boolean;
  readonly #resources = new Map<string, Located>();
  readonly #anchors = new Map<string, Located>();

  constructor(schema: JsonSchema, limits: SchemaLimits) {
    checkBounds(schema, limits);
    this.dialect = isJsonObject(schema) ? dialectOf(schema, "") : "2020-12";
    this.isUndeclared = isJsonObject(schema) && schema.$schema === undefined;
    this.root = { schema, base: this.#baseOf(schema, HOME, ""), pointer: "" };
    this.#resources.set(HOME, this.root);
    this.#index(this.root);
  }

  /** Every schema directly inside this one, wherever a keyword of either dialect holds one. */
  *children({ schema, base, pointer }: Located): Iterable<Located> {
    if (!isJsonObject(schema)) return;
    for (const [keyword, value] of Object.entries(schema)) {
      for (const [path, item] of subschemas(keyword, value)) {
        if (isSchema(item as JsonValue)) yield this.child({ schema, base, pointer }, ...path);
      }
    }
  }

  child(parent: Located, ...path: (string | number)[]): Located {
    let value: JsonValue | undefined = parent.schema;
    let pointer = parent.pointer;
    for (const key of path) {
      pointer += `/${escapePointer(String(key))}`;
      value = (value as JsonObject)[key as string];
    }
    if (!isSchema(value)) throw new SchemaError(pointer, "must be a schema: an object, true or false");
    return this.#locate(value, parent.base, pointer);
  }

  resolve(reference: string, from: Located): Located {
    const at = `${from.pointer}/$ref`;
    const target = join(reference, from.base);
    const [resourceUri = "", fragment = ""] = target.split("#", 2);
    const resource = this.#resources.get(resourceUri);
    if (resource === undefined) {
      throw new SchemaError(at, `\`${clip(reference)}\` is not in this document, and references are never fetched`);
    }
    const found = fragment === "" ? resource : this.#fragment(resource, resourceUri, fragment);
    if (found === undefined) throw new SchemaError(at, `\`${clip(reference)}\` points at nothing`);
    return found;
  }

  /** With several `$id`s the target of a dynamic reference depends on the way there, which is not followed here. */
  resolveDynamic(reference: string, from: Located): Located {
    if (new Set([...this.#resources.values()].map((resource) => resource.schema)).size > 1) {
      throw new SchemaError(`${from.pointer}/$dynamicRef`, "is supported only in a schema without nested `$id`");
    }
    return this.resolve(reference, from);
  }

  #fragment(resource: Located, uri: string, fragment: string): Located | undefined {
    let decoded: string;
    try {
      decoded = decodeURIComponent(fragment);
    } catch {
      return undefined;
    }
    if (!decoded.startsWith("/")) return this.#anchors.get(`${uri}#${decoded}`);
    let { base, pointer }: Located = resource;
    let value: JsonValue | undefined = resource.schema;
    for (const token of decoded.slice(1).split("/")) {
      const key = unescapePointer(token);
      if (value === null || typeof value !== "object" || !Object.hasOwn(value, key)) return undefined;
      value = (value as JsonObject)[key];
      pointer += `/${token}`;
      if (isJsonObject(value)) base = this.#baseOf(value, base, pointer);
    }
    return isSchema(value) ? { schema: value, base, pointer } : undefined;
  }

  /** Notes every `$id` and anchor. Iterative: depth is bounded, but the stack is not ours to spend. */
  #index(root: Located): void {
    const pending = [root];
    for (let located = pending.pop(); located !== undefined; located = pending.pop()) {
      const { schema, base, pointer } = located;
      if (isJsonObject(schema)) {
        if (pointer !== "" && schema.$schema !== undefined && dialectOf(schema, pointer) !== this.dialect) {
          throw new SchemaError(pointer, "changes the dialect inside a document, which is not supported");
        }
        const [uri = ""] = base.split("#", 1);
        if (typeof schema.$id === "string" && !schema.$id.startsWith("#") && this.#identifies(schema)) {
          this.#claim(this.#resources, uri, located);
        }
        for (const anchor of this.#anchorsOf(schema)) this.#claim(this.#anchors, `${uri}#${anchor}`, located);
      }
      for (const child of this.children(located)) pending.push(child);
    }
  }

  #claim(table: Map<string, Located>, name: string, located: Located): void {
    const other = table.get(name);
    if (other !== undefined && other.schema !== located.schema) {
      throw new SchemaError(
        located.pointer,
        `repeats the identifier \`${clip(name)}\` of ${other.pointer || "the root"}`,
      );
    }
    table.set(name, located);
  }

  #anchorsOf(schema: JsonObject): string[] {
    if (this.dialect === "2020-12") {
      return [schema.$anchor, schema.$dynamicAnchor].filter((name) => typeof name === "string");
    }
    const id = schema.$id;
    return typeof id === "string" && id.startsWith("#") && id.length > 1 && this.#identifies(schema)
      ? [id.slice(1)]
      : [];
  }

  /** In draft-07 nothing beside a `$ref` counts. */
  #identifies(schema: JsonObject): boolean {
    return this.dialect === "2020-12" || schema.$ref === undefined;
  }

  #locate(schema: JsonSchema, base: string, pointer: string): Located {
    return { schema, base: this.#baseOf(schema, base, pointer), pointer };
  }

  #baseOf(schema: JsonSchema, base: string, pointer: string): string {
    if (!isJsonObject(schema) || schema.$id === undefined || !this.#identifies(schema)) return base;
    if (typeof schema.$id !== "string") throw new SchemaError(`${pointer}/$id`, "must be a string");
    if (schema.$id.startsWith("#")) return base;
    const [uri = ""] = join(schema.$id, base).split("#", 1);
    return uri;
  }
}

export function isSchema(value: JsonValue | undefined): value is JsonSchema {
  return typeof value === "boolean" || isJsonObject(value);
}

function dialectOf(schema: JsonObject, pointer: string): Dialect {
  const declared = schema.$schema;
  if (declared === undefined) return "2020-12";
  const dialect = knownDialect(declared);
  if (dialect !== undefined) return dialect;
  throw new SchemaError(
    `${pointer}/$schema`,
    `\`${clip(String(declared))}\` is not a dialect known here; use draft-07 or 2020-12 (the default when none is named)`,
  );
}

function join(reference: string, base: string): string {
  if (reference.startsWith("#")) return base + reference;
  try {
    return new URL(reference, base).href;
  } catch {
    return reference;
  }
}

function clip(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
