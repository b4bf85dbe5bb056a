// One schema document: its dialect, and what each reference in it points at. References never leave the document:
// a schema that could make us fetch something would decide for us whom we talk to.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import {
  type Dialect,
  escapePointer,
  HOME,
  knownDialect,
  type ResourceRules,
  SchemaResources,
  splitReference,
  subschemas,
} from "./documents/index.js";
import { type JsonSchema, SchemaError, type SchemaLimits } from "./types.js";

/** `Located` is a schema, the base that its references start from, and its place in the document. */
export interface Located {
  readonly schema: JsonSchema;
  readonly base: string;
  readonly pointer: string;
}

export class SchemaDocument {
  readonly root: Located;
  readonly dialect: Dialect;
  /** Its author named no dialect: what an older one gave a meaning to is meant so. */
  readonly isUndeclared: boolean;
  readonly #resources: SchemaResources;

  constructor(schema: JsonSchema, limits: SchemaLimits) {
    this.dialect = isJsonObject(schema) ? dialectOf(schema, "") : "2020-12";
    this.isUndeclared = isJsonObject(schema) && schema.$schema === undefined;
    this.#resources = new SchemaResources(schema, this.dialect, rulesOf(this.dialect, limits));
    this.root = { schema, base: this.#resources.baseOf(schema) ?? HOME, pointer: "" };
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
    return { schema: value, base: this.#resources.baseOf(value) ?? parent.base, pointer };
  }

  resolve(reference: string, from: Located): Located {
    const at = `${from.pointer}/$ref`;
    const { address, fragment } = splitReference(reference, from.base);
    const found = this.#resources.find(address, fragment);
    if (found !== undefined && isSchema(found.value as JsonValue)) {
      const schema = found.value as JsonSchema;
      return { schema, base: this.#resources.baseOf(schema) ?? found.base, pointer: found.pointer };
    }
    const isHere = [...this.#resources.addresses()].includes(address);
    const why = isHere ? "points at nothing" : "is not in this document, and references are never fetched";
    throw new SchemaError(at, `\`${clip(reference)}\` ${why}`);
  }

  /** With several `$id`s the target of a dynamic reference depends on the way there, which is not followed here. */
  resolveDynamic(reference: string, from: Located): Located {
    if (this.#resources.hasSeveralResources) {
      throw new SchemaError(`${from.pointer}/$dynamicRef`, "is supported only in a schema without nested `$id`");
    }
    return this.resolve(reference, from);
  }
}

/** The bounds of a schema, checked before anything else looks at it, so that nothing later can be surprised. */
function rulesOf(dialect: Dialect, limits: SchemaLimits): ResourceRules {
  let characters = 0;
  let references = 0;
  return {
    maxDepth: limits.maxDepth,
    maxValues: limits.maxValues,
    exceeded(limit, max, pointer) {
      if (limit === "maxDepth") throw new SchemaError(pointer, `is nested deeper than ${max} levels`);
      throw new SchemaError("", `has more than ${max} values`);
    },
    value(value, pointer) {
      if (typeof value === "string") characters += value.length;
      else if (Array.isArray(value) && pointer.endsWith("/enum") && value.length > limits.maxEnum) {
        throw new SchemaError(pointer, `has ${value.length} values; the limit is ${limits.maxEnum}`);
      } else if (isJsonObject(value)) {
        for (const key of Object.keys(value)) {
          characters += key.length;
          if (key === "$ref") references++;
        }
      }
      if (characters > limits.maxCharacters) {
        throw new SchemaError("", `has more than ${limits.maxCharacters} characters`);
      }
      if (references > limits.maxReferences) {
        throw new SchemaError("", `has more than ${limits.maxReferences} references`);
      }
    },
    schema(schema, pointer) {
      if (pointer !== "" && schema.$schema !== undefined && dialectOf(schema, pointer) !== dialect) {
        throw new SchemaError(pointer, "changes the dialect inside a document, which is not supported");
      }
      const counts = dialect === "2020-12" || schema.$ref === undefined;
      if (counts && schema.$id !== undefined && typeof schema.$id !== "string") {
        throw new SchemaError(`${pointer}/$id`, "must be a string");
      }
    },
    repeated(name, pointer, other) {
      throw new SchemaError(pointer, `repeats the identifier \`${clip(name)}\` of ${other || "the root"}`);
    },
  };
}

export function isSchema(value: JsonValue | undefined): value is JsonSchema {
  return typeof value === "boolean" || isJsonObject(value);
}

function dialectOf({ $schema: declared }: Readonly<Record<string, unknown>>, pointer: string): Dialect {
  if (declared === undefined) return "2020-12";
  const dialect = knownDialect(declared);
  if (dialect !== undefined) return dialect;
  throw new SchemaError(
    `${pointer}/$schema`,
    `\`${clip(String(declared))}\` is not a dialect known here; use draft-07 or 2020-12 (the default when none is named)`,
  );
}

function clip(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
