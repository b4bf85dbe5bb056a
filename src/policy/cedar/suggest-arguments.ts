// Conditions that hold for every set of arguments seen: literal values while they are few, then a common path,
// a range, or nothing at all.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import { encode } from "./encode.js";
import { quoteString, quotePattern } from "./language/scan.js";
import { isSlip } from "./names.js";
import { OPEN, type RecordShape, type ValueShape } from "./shape.js";
import { Decimal } from "./value/extensions.js";
import { CedarRecord, Unencodable } from "./value/value.js";

/** Up to this many different values are listed. */
const MAX_LITERALS = 6;
const MAX_ELEMENTS = 20;
/** Longer texts are not put into a rule. */
const MAX_TEXT = 200;
/** Cedar refuses trees past 64 levels, and inside an object each condition is one. */
const MAX_INNER = 16;
const MAX_DEPTH = 2;
const MAX_UNDECLARED = 32;
const IDENTIFIER = /^[_a-zA-Z][_a-zA-Z0-9]*$/;
const RESERVED = new Set(["true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar"]);

export function constrainArguments(seen: readonly JsonObject[], shape: RecordShape): string[] {
  return constrainRecord("context.arguments", seen, shape, 0);
}

function constrainRecord(holder: string, seen: readonly JsonObject[], shape: RecordShape, depth: number): string[] {
  if (depth > MAX_DEPTH) return [];
  const conditions: string[] = [];
  for (const [name, attr] of [...shape.attrs, ...undeclared(seen, shape)].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const present = seen.filter((args) => Object.hasOwn(args, name)).map((args) => args[name] as JsonValue);
    const has = `${holder} has ${IDENTIFIER.test(name) && !RESERVED.has(name) ? name : quoteString(name)}`;
    if (present.length === 0) {
      if (!attr.required) conditions.push(`!(${has})`);
      continue;
    }
    const read = IDENTIFIER.test(name) && !RESERVED.has(name) ? `${holder}.${name}` : `${holder}[${quoteString(name)}]`;
    const inner = constrainValue(read, present, attr.shape, depth + 1).slice(0, MAX_INNER);
    if (present.length < seen.length) {
      if (inner.length > 0) conditions.push(`(if ${has} then ${inner.join(" && ")} else true)`);
    } else {
      if (!attr.required) conditions.push(has);
      conditions.push(...inner);
    }
  }
  return conditions;
}

/** Names that the schema leaves room for, with the type that was seen under them. */
function undeclared(
  seen: readonly JsonObject[],
  shape: RecordShape,
): [string, { shape: ValueShape; required: boolean }][] {
  if (!shape.open) return [];
  const declared = [...shape.attrs.keys()];
  const names = new Set(seen.flatMap((args) => Object.keys(args)).filter((name) => !shape.attrs.has(name)));
  return [...names]
    .filter((name) => name.isWellFormed() && name !== "__proto__" && !declared.some((each) => isSlip(name, each)))
    .sort()
    .slice(0, MAX_UNDECLARED)
    .map((name) => {
      const values = seen.filter((args) => Object.hasOwn(args, name)).map((args) => args[name] as JsonValue);
      return [name, { shape: shapeSeen(values), required: false }];
    });
}

function shapeSeen(values: readonly JsonValue[]): ValueShape {
  const types = new Set(values.map((value) => (Number.isSafeInteger(value) ? "long" : typeof value)));
  const [type] = types;
  if (types.size === 1 && (type === "string" || type === "long")) return { kind: type };
  return types.size === 1 && type === "boolean" ? { kind: "bool" } : OPEN;
}

/** Nothing is said about a value that policy cannot read: a rule that did would deny the very call it was made from. */
function constrainValue(read: string, values: readonly JsonValue[], shape: ValueShape, depth: number): string[] {
  if (values.some((value) => !isReadable(value, shape))) return [];
  switch (shape.kind) {
    case "string":
      return values.every((value) => typeof value === "string") ? constrainText(read, values as string[]) : [];
    case "long":
      return values.every((value) => Number.isSafeInteger(value)) ? constrainNumber(read, values as number[]) : [];
    case "bool":
      return constrainBool(read, values);
    case "decimal":
      return values.every((value) => typeof value === "number") ? constrainDecimal(read, values as number[]) : [];
    case "set":
      return values.every(Array.isArray) ? constrainSet(read, values as JsonValue[][], shape.element) : [];
    case "record":
      return values.every(isObject) ? constrainRecord(read, values as JsonObject[], shape, depth) : [];
    case "open":
      return [];
  }
}

function isReadable(value: JsonValue, shape: ValueShape): boolean {
  const encoded = encode(value, shape, "");
  return !(encoded instanceof Unencodable) && !(encoded instanceof CedarRecord && encoded.flaw !== undefined);
}

function isObject(value: JsonValue): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function constrainText(read: string, values: readonly string[]): string[] {
  const distinct = [...new Set(values)].sort();
  if (distinct.length <= MAX_LITERALS && distinct.every((value) => value.length <= MAX_TEXT)) {
    return [oneOf(read, distinct.map(quoteString))];
  }
  const prefix = commonFolder(distinct);
  if (prefix === "") return [];
  const below = `${read} like ${quotePattern([prefix, ""])}`;
  // `like "/srv/*"` also matches /srv/../etc; say so unless that is what was seen.
  return distinct.some((value) => value.includes("..")) ? [below] : [below, `!(${read} like "*..*")`];
}

/** The longest beginning that all share, cut behind its last slash. */
function commonFolder(texts: readonly string[]): string {
  let prefix = texts[0] ?? "";
  for (const text of texts) while (!text.startsWith(prefix)) prefix = prefix.slice(0, -1);
  const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  return folder.length <= MAX_TEXT && folder.isWellFormed() && !/^([a-z]+:)?\/*$/i.test(folder) ? folder : "";
}

function constrainNumber(read: string, values: readonly number[]): string[] {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  if (distinct.length <= MAX_LITERALS) return [oneOf(read, distinct.map(String))];
  return [`${read} >= ${distinct[0]}`, `${read} <= ${distinct.at(-1)}`];
}

function constrainDecimal(read: string, values: readonly number[]): string[] {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const text = (value: number | undefined): string => `decimal("${Decimal.fromNumber(value ?? 0)}")`;
  if (distinct.length === 1) return [`${read} == ${text(distinct[0])}`];
  return [`${read}.greaterThanOrEqual(${text(distinct[0])})`, `${read}.lessThanOrEqual(${text(distinct.at(-1))})`];
}

function constrainBool(read: string, values: readonly JsonValue[]): string[] {
  const [first] = values;
  if (typeof first !== "boolean" || values.some((value) => value !== first)) return [];
  return [first === true ? read : `!${read}`];
}

function constrainSet(read: string, values: readonly (readonly JsonValue[])[], element: ValueShape): string[] {
  const elements = [...new Set(values.flat())];
  if (elements.length === 0) return [`${read}.isEmpty()`];
  if (elements.length > MAX_ELEMENTS) return [];
  const literals = elements.map((value) => literal(value, element)).sort();
  if (literals.some((text) => text === undefined)) return [];
  return [`[${literals.join(", ")}].containsAll(${read})`];
}

function literal(value: JsonValue, shape: ValueShape): string | undefined {
  if (shape.kind === "string" && typeof value === "string" && value.length <= MAX_TEXT) return quoteString(value);
  if (shape.kind === "long" && Number.isSafeInteger(value)) return String(value);
  if (shape.kind === "bool" && typeof value === "boolean") return String(value);
  if (shape.kind === "decimal" && typeof value === "number") return `decimal("${Decimal.fromNumber(value)}")`;
  return undefined;
}

function oneOf(read: string, literals: readonly string[]): string {
  return literals.length === 1 ? `${read} == ${literals[0]}` : `[${literals.join(", ")}].contains(${read})`;
}
