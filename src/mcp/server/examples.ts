// Examples made from the constraints of a schema. Deterministic, and each one is checked against its schema before
// anyone sees it; a schema too odd to make examples for simply has fewer.

import {
  createMatcher,
  equalityKey,
  FORMAT_EXAMPLES,
  isSchema,
  type Located,
  Schema,
  type SchemaDocument,
  sampleOf,
} from "../../schema/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../index.js";
import type { JsonSchema } from "./types.js";

const MAX_EXAMPLES = 20;
const MAX_TRIES = 4;
const MAX_VALUES = 2_000;
const MAX_DEPTH = 8;
const MAX_TEXT = 1_000;

/** Up to `count` different values that fit the schema: first the shortest, then fuller ones. */
export function examples(of: JsonSchema | Readonly<Record<string, unknown>> | Schema, count = 2): JsonValue[] {
  const found = new Map<string, JsonValue>();
  try {
    const schema = of instanceof Schema ? of : new Schema(of as JsonSchema);
    const wanted = Math.min(count, MAX_EXAMPLES);
    for (let variant = 0; variant < wanted * MAX_TRIES && found.size < wanted; variant++) {
      const value = new Maker(schema.document, variant).make(schema.document.root, 0);
      if (value !== undefined && schema.validateNow(value)?.ok === true) found.set(equalityKey(value), value);
    }
  } catch {
    // A schema that cannot be compiled has no examples; its server was rejected already.
  }
  return [...found.values()];
}

class Maker {
  readonly #document: SchemaDocument;
  readonly #variant: number;
  #values = 0;

  constructor(document: SchemaDocument, variant: number) {
    this.#document = document;
    this.#variant = variant;
  }

  /** Undefined when nothing can be made. */
  make(located: Located, depth: number, nudge = 0): JsonValue | undefined {
    if (++this.#values > MAX_VALUES || depth > MAX_DEPTH * 2) return undefined;
    const { schema } = located;
    if (schema === true) return "example";
    if (schema === false) return undefined;
    const given = this.#given(schema, nudge);
    if (given !== undefined) return given;
    const flat = this.#flatten(located, 0);
    if (flat === undefined) return undefined;
    const chosen = this.#given(flat.schema as JsonObject, nudge);
    return chosen === undefined ? this.#ofType(flat, depth, nudge) : chosen;
  }

  /** What the author wrote down beats what we could make up. */
  #given(schema: JsonObject, nudge: number): JsonValue | undefined {
    const pick = this.#variant + nudge;
    if (schema.const !== undefined) return schema.const;
    if (Array.isArray(schema.examples) && schema.examples.length > 0)
      return schema.examples[pick % schema.examples.length];
    if (schema.default !== undefined && pick % 2 === 0) return schema.default;
    if (Array.isArray(schema.enum) && schema.enum.length > 0) return schema.enum[pick % schema.enum.length];
    return undefined;
  }

  /** One schema without references, with one alternative chosen and all that must hold together merged. */
  #flatten(located: Located, hops: number): Located | undefined {
    const schema = located.schema;
    if (!isJsonObject(schema)) return schema ? { ...located, schema: {} } : undefined;
    if (hops > 20) return undefined;
    const { $ref, $dynamicRef, allOf, anyOf, oneOf, ...own } = schema;
    const parts: Located[] = [];
    const reference = $ref ?? $dynamicRef;
    if (typeof reference === "string") parts.push(this.#document.resolve(reference, located));
    if (Array.isArray(allOf)) parts.push(...allOf.map((_, index) => this.#document.child(located, "allOf", index)));
    for (const [keyword, options] of Object.entries({ anyOf, oneOf })) {
      if (Array.isArray(options)) parts.push(this.#document.child(located, keyword, this.#variant % options.length));
    }
    let merged: JsonObject = own;
    for (const part of parts) {
      const flat = this.#flatten(part, hops + 1);
      if (flat === undefined) return undefined;
      merged = merge(merged, flat.schema as JsonObject);
    }
    return { ...located, schema: merged };
  }

  #ofType(located: Located, depth: number, nudge: number): JsonValue | undefined {
    const schema = located.schema as JsonObject;
    switch (typeOf(schema, this.#variant)) {
      case "object":
        return this.#object(located, depth);
      case "array":
        return this.#array(located, depth);
      case "string":
        return this.#string(schema, nudge);
      case "integer":
        return this.#number(schema, true, nudge);
      case "number":
        return this.#number(schema, false, nudge);
      case "boolean":
        return (this.#variant + nudge) % 2 === 0;
      case "null":
        return null;
      default:
        return "example";
    }
  }

  #object(located: Located, depth: number): JsonValue | undefined {
    const schema = located.schema as JsonObject;
    const declared = isJsonObject(schema.properties) ? schema.properties : {};
    const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
    const minimum = typeof schema.minProperties === "number" ? schema.minProperties : 0;
    const full = this.#variant % 2 === 1 && depth < MAX_DEPTH;
    const object: JsonObject = {};
    for (const name of new Set([...required, ...Object.keys(declared)])) {
      const wanted = required.includes(name);
      if (!wanted && !full && Object.keys(object).length >= minimum) continue;
      const child = Object.hasOwn(declared, name) ? declared[name] : (schema.additionalProperties ?? true);
      if (!isSchema(child)) return undefined;
      const value = this.make({ ...located, schema: child }, depth + 1);
      if (value !== undefined) define(object, name, value);
      else if (wanted) return undefined;
    }
    for (let extra = 1; Object.keys(object).length < Math.min(minimum, 50); extra++) {
      const child = schema.additionalProperties ?? true;
      const value = isSchema(child) ? this.make({ ...located, schema: child }, depth + 1, extra) : undefined;
      if (value === undefined || extra > 50) return undefined;
      define(object, `name${extra}`, value);
    }
    return object;
  }

  #array(located: Located, depth: number): JsonValue | undefined {
    const schema = located.schema as JsonObject;
    const leading = [schema.prefixItems, schema.items].find((list) => Array.isArray(list)) ?? [];
    const rest = [schema.items, schema.additionalItems, schema.contains].find((item) => isSchema(item)) ?? true;
    const minimum = Math.max(Number(schema.minItems ?? 0), schema.contains === undefined ? 0 : 1);
    const maximum = Number(schema.maxItems ?? 50);
    const usual = depth < MAX_DEPTH ? Math.max(1 + (this.#variant % 2), leading.length) : 0;
    const length = Math.min(Math.max(minimum, Math.min(usual, maximum)), 50);
    const array: JsonValue[] = [];
    for (let index = 0; index < length; index++) {
      const source =
        index === 0 && leading.length === 0 && isSchema(schema.contains) ? schema.contains : leading[index];
      const item = this.make({ ...located, schema: isSchema(source) ? source : rest }, depth + 1, index);
      if (item === undefined) return array.length >= minimum ? array : undefined;
      array.push(item);
    }
    return array;
  }

  #string(schema: JsonObject, nudge: number): JsonValue | undefined {
    const min = Math.min(Number(schema.minLength ?? 0), MAX_TEXT);
    const max = Math.min(Number(schema.maxLength ?? MAX_TEXT), MAX_TEXT);
    if (typeof schema.pattern === "string") {
      const outcome = createMatcher(schema.pattern, { left: 100_000 });
      return outcome.ok ? sampleOf(outcome.matcher, this.#variant + nudge, { min, max }) : undefined;
    }
    const format = typeof schema.format === "string" ? FORMAT_EXAMPLES[schema.format] : undefined;
    if (format !== undefined) return format;
    const word = WORDS[(this.#variant + nudge) % WORDS.length] as string;
    return word
      .repeat(Math.ceil(Math.max(min, word.length) / word.length))
      .slice(0, Math.max(min, Math.min(max, word.length)));
  }

  #number(schema: JsonObject, whole: boolean, nudge: number): JsonValue | undefined {
    const bounds = (keyword: string, exclusive: string, step: number) => {
      const inclusive = schema[keyword];
      const open = schema[exclusive];
      const values = [inclusive, typeof open === "number" ? open + step : undefined].filter(
        (v) => typeof v === "number",
      );
      return values.length === 0 ? undefined : step > 0 ? Math.max(...values) : Math.min(...values);
    };
    const unit = whole ? 1 : 0.5;
    const low = bounds("minimum", "exclusiveMinimum", unit);
    const high = bounds("maximum", "exclusiveMaximum", -unit);
    const from = low ?? (high === undefined ? 1 : Math.min(1, high));
    const to = high ?? from + 100;
    const share = [0.25, 0, 1, 0.5, 0.75][(this.#variant + nudge) % 5] as number;
    const middle = from + (to - from) * share;
    const step =
      typeof schema.multipleOf === "number" ? schema.multipleOf : whole || Number.isInteger(from) ? 1 : undefined;
    if (step === undefined) return middle;
    const rounded = Math.round(middle / step) * step;
    if (rounded < from) return Math.ceil(from / step) * step;
    return rounded > to ? Math.floor(to / step) * step : rounded;
  }
}

const WORDS = ["example", "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf"];

/** A property of any name, also `__proto__`. */
function define(object: JsonObject, name: string, value: JsonValue): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

function typeOf(schema: JsonObject, variant: number): string | undefined {
  if (typeof schema.type === "string") return schema.type;
  if (Array.isArray(schema.type)) {
    const useful = schema.type.filter((type) => type !== "null");
    return String((useful.length > 0 ? useful : schema.type)[variant % Math.max(useful.length, 1)]);
  }
  const has = (...keywords: string[]) => keywords.some((keyword) => schema[keyword] !== undefined);
  if (has("properties", "required", "additionalProperties", "minProperties", "patternProperties")) return "object";
  if (has("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")) return "array";
  if (has("pattern", "minLength", "maxLength", "format")) return "string";
  if (has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")) return "number";
  return undefined;
}

/** Both must hold: properties and required names add up, limits tighten, anything else is the later one's. */
function merge(a: JsonObject, b: JsonObject): JsonObject {
  const merged: JsonObject = { ...a, ...b };
  if (isJsonObject(a.properties) && isJsonObject(b.properties)) {
    merged.properties = { ...a.properties, ...b.properties };
  }
  if (Array.isArray(a.required) && Array.isArray(b.required)) merged.required = [...a.required, ...b.required];
  for (const [keyword, tighter] of Object.entries(TIGHTER)) {
    const [left, right] = [a[keyword], b[keyword]];
    if (typeof left === "number" && typeof right === "number") merged[keyword] = tighter(left, right);
  }
  return merged;
}

const TIGHTER: Readonly<Record<string, (a: number, b: number) => number>> = {
  ...Object.fromEntries(
    ["minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"].map((k) => [k, Math.max]),
  ),
  ...Object.fromEntries(
    ["maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"].map((k) => [k, Math.min]),
  ),
};
