// A caller's JSON into Cedar values. The encoding is ours alone: Cedar's own JSON form would let a caller forge
// entities with `__entity`, and it refuses the whole request for one null. Here a value without a Cedar form is an
// error for the rule that reads it and for no other.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import type { ValueShape } from "./shape.js";
import { Decimal } from "./value/extensions.js";
import { CedarRecord, CedarSet, Unencodable, type Value } from "./value/value.js";

/** Keys with which Cedar's JSON form escapes from data into entities and functions. */
const RESERVED_KEYS = new Set(["__entity", "__extn", "__expr"]);

/** As deep as the strict JSON reader lets a message be. */
const MAX_DEPTH = 128;

/** Undefined when the arguments may be shown to policy, else why not. */
export function refuseArguments(value: JsonValue, depth = 0): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (depth > MAX_DEPTH) return `arguments are nested deeper than ${MAX_DEPTH} levels`;
  if (Array.isArray(value)) {
    for (const item of value) {
      const why = refuseArguments(item, depth + 1);
      if (why !== undefined) return why;
    }
    return undefined;
  }
  for (const key in value) {
    if (RESERVED_KEYS.has(key)) return `the argument name ${key} is reserved by the policy language`;
    const item = value[key];
    const why = typeof item === "object" ? refuseArguments(item, depth + 1) : undefined;
    if (why !== undefined) return why;
  }
  return undefined;
}

export function encode(value: JsonValue | undefined, shape: ValueShape | undefined, name: string): Value {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? value : new Unencodable(`argument ${name} is not well-formed Unicode`);
    case "boolean":
      return value;
    case "number":
      return encodeNumber(value, shape, name);
    default:
      if (value === null || value === undefined) {
        return new Unencodable(`argument ${name} is null, which policy cannot compare`);
      }
      return Array.isArray(value) ? encodeArray(value, shape, name) : encodeRecord(value, shape, name);
  }
}

/** JSON cannot tell 1 from 1.0: where the tool says `number` every value is a decimal, elsewhere a whole one is a Long. */
function encodeNumber(value: number, shape: ValueShape | undefined, name: string): Value {
  if (shape?.kind !== "decimal" && Number.isInteger(value)) {
    if (Number.isSafeInteger(value)) return value;
    return new Unencodable(`argument ${name} is ${value}, which is past the integers that JSON carries exactly`);
  }
  const decimal = Decimal.fromNumber(value);
  return decimal ?? new Unencodable(`argument ${name} is ${value}, which is not a decimal of at most four digits`);
}

function encodeArray(value: readonly JsonValue[], shape: ValueShape | undefined, name: string): Value {
  const element = shape?.kind === "set" ? shape.element : undefined;
  const items: Value[] = [];
  for (const item of value) {
    const encoded = encode(item, element, `${name}[${items.length}]`);
    if (encoded instanceof Unencodable) return encoded;
    if (encoded instanceof CedarRecord && encoded.flaw !== undefined) return new Unencodable(encoded.flaw);
    items.push(encoded);
  }
  return new CedarSet(items);
}

export function encodeRecord(value: JsonObject, shape: ValueShape | undefined, name: string): CedarRecord {
  const attrs = new Map<string, Value>();
  for (const key of Object.keys(value)) {
    attrs.set(key, encode(value[key], attributeShape(shape, key), name === "" ? key : `${name}.${key}`));
  }
  return new CedarRecord(attrs);
}

export function attributeShape(shape: ValueShape | undefined, key: string): ValueShape | undefined {
  return shape?.kind === "record" ? shape.attrs.get(key)?.shape : undefined;
}
