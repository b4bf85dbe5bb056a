import { type Dialect, equalityKey } from "../../schema/documents/index.js";
import { dialectOf, isObject, type SchemaValue } from "./document.js";

/**
 * A set of JSON values: a schema, or an intersection or union of such sets. Kept as parts and not written into one
 * schema, because two schemas may be of different dialects and their references and `$id`s may clash.
 */
export type ValueType =
  | { readonly is: "schema"; readonly schema: SchemaValue }
  | { readonly is: "all" | "any"; readonly of: readonly ValueType[] };

export const ANY_VALUE: ValueType = { is: "schema", schema: true };
export const NO_VALUE: ValueType = { is: "schema", schema: false };

export function typeOf(schema: SchemaValue): ValueType {
  return { is: "schema", schema };
}

/** Text that is equal for types that are written the same. */
export function typeKey(type: ValueType): string {
  if (type.is === "schema") return equalityKey(type.schema);
  return `${type.is}(${[...new Set(type.of.map(typeKey))].toSorted().join(" ")})`;
}

export function schemasOf(type: ValueType): readonly SchemaValue[] {
  return type.is === "schema" ? [type.schema] : type.of.flatMap(schemasOf);
}

/** Three-valued: undefined when a part that matters has no verdict. */
export function acceptsValue(
  type: ValueType,
  value: unknown,
  check: (schema: SchemaValue, value: unknown) => boolean | undefined,
): boolean | undefined {
  if (type.is === "schema") return check(type.schema, value);
  const decisive = type.is === "any";
  const verdicts = type.of.map((part) => acceptsValue(part, value, check));
  if (verdicts.includes(decisive)) return decisive;
  return verdicts.includes(undefined) ? undefined : !decisive;
}

/** All values that a type could hold, when it lists them. */
export function listedValues(type: ValueType): readonly unknown[] | undefined {
  if (type.is === "schema") return listedBySchema(type.schema);
  const lists = type.of.map(listedValues);
  if (type.is === "all") return lists.find((values) => values !== undefined);
  return lists.includes(undefined) ? undefined : lists.flatMap((values) => values ?? []);
}

function listedBySchema(schema: SchemaValue): readonly unknown[] | undefined {
  if (schema === false) return [];
  if (!isObject(schema) || "$ref" in schema) return undefined;
  if ("const" in schema) return [schema.const];
  if (Array.isArray(schema.enum)) return schema.enum;
  if (!Array.isArray(schema.allOf)) return undefined;
  return schema.allOf.map((part) => listedBySchema(part)).find((values) => values !== undefined);
}

/**
 * The type as one schema, to be shown or handed to a validator. Undefined when the parts cannot stand in one document:
 * they are of different dialects, or they name things (`$id`, `$anchor`) that could clash.
 */
export function toSchema(type: ValueType, fallback: Dialect = "2020-12"): SchemaValue | undefined {
  if (type.is === "schema") return type.schema;
  const schemas = schemasOf(type);
  const dialects = new Set(schemas.filter(isObject).map((schema) => dialectOf(schema, fallback)));
  if (dialects.size > 1 || dialects.has(undefined) || schemas.some(hasNames)) return undefined;
  const declared = schemas.find((schema) => isObject(schema) && schema.$schema !== undefined);
  const combined = embed(type, "") as { readonly [keyword: string]: unknown };
  return isObject(declared) ? { $schema: declared.$schema, ...combined } : combined;
}

function embed(type: ValueType, at: string): unknown {
  if (type.is === "schema") return moved(type.schema, at, true);
  const keyword = type.is === "all" ? "allOf" : "anyOf";
  return { [keyword]: type.of.map((part, i) => embed(part, `${at}/${keyword}/${i}`)) };
}

/** A copy whose references to its own root lead to where it now stands. */
function moved(value: unknown, at: string, isRoot = false): unknown {
  if (Array.isArray(value)) return value.map((item) => moved(item, at));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => !(isRoot && key === "$schema"))
      .map(([key, inner]) => {
        if (key === "const" || key === "enum" || key === "default" || key === "examples") return [key, inner];
        const isLocal = key === "$ref" && typeof inner === "string" && /^#(?:$|\/)/.test(inner);
        return [key, isLocal ? `#${at}${inner.slice(1)}` : moved(inner, at)];
      }),
  );
}

function hasNames(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(hasNames);
  if (!isObject(value)) return false;
  return Object.entries(value).some(([key, inner]) =>
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef"].includes(key) ? typeof inner === "string" : hasNames(inner),
  );
}
