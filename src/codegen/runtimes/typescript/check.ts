// Decides whether a value fits, by the table that was generated beside it. No dependencies.

import type { ErrorType } from "./error-table.js";
import { DecodeError, type Problem } from "./errors.js";
import { NODES, PATTERNS } from "./table.js";

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A schema with everything resolved; references are places in the table. */
export interface CheckNode {
  never?: true;
  types?: string[];
  values?: Json[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  patterns?: number[];
  format?: string;
  properties?: [string, number][];
  patternProperties?: [number, number][];
  additionalProperties?: number;
  unevaluatedProperties?: number;
  propertyNames?: number;
  required?: string[];
  minProperties?: number;
  maxProperties?: number;
  dependentRequired?: [string, string[]][];
  dependentSchemas?: [string, number][];
  prefixItems?: number[];
  items?: number;
  unevaluatedItems?: number;
  contains?: number;
  minContains?: number;
  maxContains?: number;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: true;
  all?: number[];
  any?: number[];
  one?: number[];
  not?: number;
  if?: number;
  then?: number;
  else?: number;
}

/** A pattern, and the program it was compiled to. */
export interface CheckPattern {
  readonly source: string;
  readonly flags: string;
  readonly program: Program | undefined;
}

interface Program {
  /** Reads code points; otherwise UTF-16 units. */
  readonly unicode: boolean;
  readonly sets: readonly (readonly number[])[];
  /** Three numbers for each instruction: read, split, jump, assert, look ahead, match. */
  readonly code: readonly number[];
}

/** Returns the very value that came in, typed; fields that the schema does not know stay in it. */
export function decode<T>(type: ErrorType, what: string, node: number, value: unknown): T {
  const problem = check(node, value);
  if (problem !== undefined) throw new DecodeError(type, what, problem);
  return value as T;
}

/** What is wrong with a value, or undefined when it fits. */
export function check(node: number, value: unknown): Problem | undefined {
  const run: Run = { steps: MAX_STEPS, problem: undefined };
  // Steps that ran out deny, wherever that happened: inside a negation it would otherwise look like success.
  if (holds(node, value, "", 0, run, undefined) && run.steps >= 0) return undefined;
  return run.problem ?? { path: "", message: "does not fit" };
}

const MAX_STEPS = 5_000_000;
const MAX_DEPTH = 256;

interface Run {
  steps: number;
  problem: Problem | undefined;
}

/** What has been looked at already, for the keywords that ask. */
interface Seen {
  names: Set<string>;
  allNames: boolean;
  items: Set<number>;
  allItems: boolean;
}

type Fields = Record<string, unknown>;

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function hasType(value: unknown, type: string): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    case "number":
      return typeof value === "number" && Number.isFinite(value);
    default:
      return typeof value === type;
  }
}

function fail(run: Run, path: string, message: string): false {
  run.problem ??= { path, message };
  return false;
}

function holds(id: number, value: unknown, path: string, depth: number, run: Run, outer: Seen | undefined): boolean {
  const node = NODES[id];
  if (node === undefined) return fail(run, path, "has no check");
  if (--run.steps < 0) return fail(run, path, "takes too long to check");
  if (depth > MAX_DEPTH) {
    run.steps = -1;
    return fail(run, path, "is nested too deep");
  }
  if (node.never) return fail(run, path, "must not be there");
  if (node.types && !node.types.some((type) => hasType(value, type))) {
    return fail(run, path, "must be of type " + node.types.join(" or "));
  }
  if (node.values && !node.values.some((allowed) => same(allowed, value, run))) {
    return fail(run, path, "must be one of the listed values");
  }
  const wantsSeen = node.unevaluatedItems !== undefined || node.unevaluatedProperties !== undefined;
  const seen: Seen | undefined =
    wantsSeen || outer ? { names: new Set(), allNames: false, items: new Set(), allItems: false } : undefined;
  if (typeof value === "string" && !text(node, value, path, run)) return false;
  if (typeof value === "number" && !number(node, value, path, run)) return false;
  if (Array.isArray(value) && !list(node, value, path, depth, run, seen)) return false;
  if (isObject(value) && !fields(node, value, path, depth, run, seen)) return false;
  if (!together(node, value, path, depth, run, seen)) return false;
  if (seen && !leftovers(node, value, path, depth, run, seen)) return false;
  if (outer && seen) add(outer, seen);
  return true;
}

function add(outer: Seen, seen: Seen): void {
  for (const name of seen.names) outer.names.add(name);
  for (const index of seen.items) outer.items.add(index);
  outer.allNames ||= seen.allNames;
  outer.allItems ||= seen.allItems;
}

function text(node: CheckNode, value: string, path: string, run: Run): boolean {
  run.steps -= value.length >> 4;
  if (node.minLength !== undefined || node.maxLength !== undefined) {
    let length = 0;
    for (const _ of value) length++;
    if (length < (node.minLength ?? 0)) return fail(run, path, "must have at least " + node.minLength + " characters");
    if (length > (node.maxLength ?? Infinity))
      return fail(run, path, "must have at most " + node.maxLength + " characters");
  }
  for (const id of node.patterns ?? []) {
    if (!matches(id, value, run)) return fail(run, path, "must match " + PATTERNS[id]?.source);
  }
  return (
    node.format === undefined || formats(node.format, value) || fail(run, path, "must be of format " + node.format)
  );
}

/** Runs the program of a pattern by keeping the set of places it can be at: the time is in proportion to the text. */
function matches(id: number, value: string, run: Run): boolean {
  const pattern = PATTERNS[id];
  if (pattern === undefined) return false;
  const { source, flags, program } = pattern;
  // Back references and the like have no program; such a pattern costs what it costs in JavaScript.
  if (program === undefined) return new RegExp(source, flags).test(value);
  const units: number[] = [];
  if (program.unicode) for (const char of value) units.push(char.codePointAt(0) as number);
  else for (let i = 0; i < value.length; i++) units.push(value.charCodeAt(i));
  return search(program, units, 0, 0, true, run);
}

function search(program: Program, units: number[], entry: number, from: number, anywhere: boolean, run: Run): boolean {
  const { code } = program;
  const marks = new Int32Array(code.length / 3).fill(-1);
  let current: number[] = [];
  for (let at = from; at <= units.length; at++) {
    if (anywhere || at === from) current.push(entry);
    const next: number[] = [];
    for (let place = current.pop(); place !== undefined; place = current.pop()) {
      if (marks[place] === at) continue;
      marks[place] = at;
      if (--run.steps < 0) return false;
      const [a, b] = [code[place * 3 + 1] as number, code[place * 3 + 2] as number];
      switch (code[place * 3]) {
        case 0:
          if (at < units.length && inSet(program.sets[a] ?? [], units[at] as number)) next.push(place + 1);
          break;
        case 1:
          current.push(a, b);
          break;
        case 2:
          current.push(a);
          break;
        case 3:
          if (asserted(a, units, at)) current.push(place + 1);
          break;
        case 4:
          if (search(program, units, place + 1, at, false, run) !== (a === 1)) current.push(b);
          break;
        default:
          return true;
      }
    }
    current = next;
    if (current.length === 0 && !anywhere) return false;
  }
  return false;
}

/** Ranges as low, high, low, high, …, in order. */
function inSet(ranges: readonly number[], unit: number): boolean {
  let low = 0;
  let high = ranges.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ranges[middle * 2 + 1] as number) < unit) low = middle + 1;
    else high = middle;
  }
  return low * 2 < ranges.length && (ranges[low * 2] as number) <= unit;
}

function asserted(kind: number, units: readonly number[], at: number): boolean {
  const before = at > 0 ? units[at - 1] : undefined;
  const after = units[at];
  switch (kind) {
    case 0:
      return before === undefined;
    case 1:
      return after === undefined;
    case 2:
      return before === undefined || endsLine(before);
    case 3:
      return after === undefined || endsLine(after);
    case 4:
      return inWord(before) !== inWord(after);
    default:
      return inWord(before) === inWord(after);
  }
}

function endsLine(unit: number): boolean {
  return unit === 0x0a || unit === 0x0d || unit === 0x2028 || unit === 0x2029;
}

function inWord(unit: number | undefined): boolean {
  return unit !== undefined && unit < 128 && /\w/.test(String.fromCharCode(unit));
}

function formats(name: string, value: string): boolean {
  switch (name) {
    case "date":
      return dayOf(value) !== undefined;
    case "time":
      return timeOf(value) !== undefined;
    case "date-time":
      return isDateTime(value);
    case "iso-time":
      return isIsoTime(value);
    case "iso-date-time": {
      const parts = value.split(/t|\s/i);
      return parts.length === 2 && dayOf(parts[0] ?? "") !== undefined && isIsoTime(parts[1] ?? "");
    }
    case "hostname":
      return value.length <= 253 && value.split(".").every(isLabel);
    case "regex":
      return isRegex(value);
    default:
      return true;
  }
}

/** A full-date of RFC 3339, as days since 1970. */
function dayOf(value: string): number | undefined {
  const found = /^(\d\d\d\d)-(\d\d)-(\d\d)$/.exec(value);
  if (!found) return undefined;
  const [year, month, day] = [Number(found[1]), Number(found[2]), Number(found[3])];
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  return date.getTime() / 86_400_000;
}

/** A full-time of RFC 3339, in minutes after midnight in UTC. A leap second is the last second of a day in UTC. */
function timeOf(value: string): { minute: number; leap: boolean } | undefined {
  const found = /^(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))$/.exec(value);
  if (!found) return undefined;
  const [hour, minute, second] = [Number(found[1]), Number(found[2]), Number(found[3])];
  const [zoneHour, zoneMinute] = [Number(found[5] ?? 0), Number(found[6] ?? 0)];
  if (hour > 23 || minute > 59 || second > 60 || zoneHour > 23 || zoneMinute > 59) return undefined;
  const utc = hour * 60 + minute - (found[4] === "-" ? -1 : 1) * (zoneHour * 60 + zoneMinute);
  if (second === 60 && (utc + 1440) % 1440 !== 1439) return undefined;
  return { minute: utc, leap: second === 60 };
}

function isDateTime(value: string): boolean {
  if (value[10] !== "T" && value[10] !== "t") return false;
  const day = dayOf(value.slice(0, 10));
  const time = timeOf(value.slice(11));
  if (day === undefined || time === undefined) return false;
  // Leap seconds are added at the end of a month.
  const nextDay = day + Math.floor(time.minute / 1440) + 1;
  return !time.leap || new Date(nextDay * 86_400_000).getUTCDate() === 1;
}

function isIsoTime(value: string): boolean {
  const found = /^(\d\d):(\d\d):(\d\d(?:\.\d+)?)(z|([+-])(\d\d)(?::?(\d\d))?)?$/i.exec(value);
  if (!found) return false;
  const [hour, minute, second] = [Number(found[1]), Number(found[2]), Number(found[3])];
  const [zoneHour, zoneMinute] = [Number(found[6] ?? 0), Number(found[7] ?? 0)];
  if (zoneHour > 23 || zoneMinute > 59) return false;
  if (hour <= 23 && minute <= 59 && second < 60) return true;
  // A leap second stands at the end of a day in UTC.
  const sign = found[5] === "-" ? -1 : 1;
  const utcMinute = minute - zoneMinute * sign;
  const utcHour = hour - zoneHour * sign - (utcMinute < 0 ? 1 : 0);
  return (utcHour === 23 || utcHour === -1) && (utcMinute === 59 || utcMinute === -1) && second < 61;
}

/** In every runtime; not every TypeScript library declares it. */
declare const URL: new (text: string) => unknown;

/** A label of RFC 1123. Two hyphens in the third and fourth place are for internationalized labels alone (RFC 5890). */
function isLabel(label: string): boolean {
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i.test(label)) return false;
  if (label.slice(2, 4) !== "--") return true;
  if (!/^xn--/i.test(label)) return false;
  try {
    new URL("ws://" + label);
    return true;
  } catch {
    return false;
  }
}

function isRegex(value: string): boolean {
  if (/[^\\]\\Z/.test(value)) return false;
  try {
    return new RegExp(value) instanceof RegExp;
  } catch {
    return false;
  }
}

function number(node: CheckNode, value: number, path: string, run: Run): boolean {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = node;
  if (minimum !== undefined && value < minimum) return fail(run, path, "must be at least " + minimum);
  if (maximum !== undefined && value > maximum) return fail(run, path, "must be at most " + maximum);
  if (exclusiveMinimum !== undefined && value <= exclusiveMinimum)
    return fail(run, path, "must be more than " + exclusiveMinimum);
  if (exclusiveMaximum !== undefined && value >= exclusiveMaximum)
    return fail(run, path, "must be less than " + exclusiveMaximum);
  if (multipleOf !== undefined && !isMultiple(value, multipleOf))
    return fail(run, path, "must be a multiple of " + multipleOf);
  if (node.format === "int32" && !(Number.isInteger(value) && Math.abs(value + 0.5) < 2 ** 31))
    return fail(run, path, "must be of format int32");
  if (node.format === "int64" && !Number.isInteger(value)) return fail(run, path, "must be of format int64");
  return true;
}

/** In the decimals that people write: 19.99 is a multiple of 0.01. */
function isMultiple(value: number, divisor: number): boolean {
  if (value % divisor === 0) return true;
  if (Number.isInteger(value) && Number.isInteger(divisor)) return false;
  const [a, b] = [decimal(value), decimal(divisor)];
  const low = Math.min(a.exponent, b.exponent);
  const scaled = (each: { digits: bigint; exponent: number }): bigint =>
    each.digits * 10n ** BigInt(each.exponent - low);
  return scaled(a) % scaled(b) === 0n;
}

function decimal(value: number): { digits: bigint; exponent: number } {
  const [mantissa = "0", power = "0"] = value.toExponential().split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}

function list(
  node: CheckNode,
  value: unknown[],
  path: string,
  depth: number,
  run: Run,
  seen: Seen | undefined,
): boolean {
  if (value.length < (node.minItems ?? 0)) return fail(run, path, "must have at least " + node.minItems + " items");
  if (value.length > (node.maxItems ?? Infinity))
    return fail(run, path, "must have at most " + node.maxItems + " items");
  for (const [i, item] of value.entries()) {
    const id = node.prefixItems?.[i] ?? node.items;
    if (id === undefined) break;
    seen?.items.add(i);
    if (!holds(id, item, path + "/" + i, depth + 1, run, undefined)) return false;
  }
  if (node.contains !== undefined) {
    let found = 0;
    for (const [i, item] of value.entries()) {
      if (!quietly(run, () => holds(node.contains as number, item, path, depth + 1, run, undefined))) continue;
      found++;
      seen?.items.add(i);
    }
    if (found < (node.minContains ?? 1) || found > (node.maxContains ?? Infinity)) {
      return fail(run, path, "must contain the right number of matching items");
    }
  }
  if (node.uniqueItems && new Set(value.map((item) => keyOf(item, run))).size < value.length) {
    return fail(run, path, "must not hold an item twice");
  }
  return true;
}

function fields(
  node: CheckNode,
  value: Fields,
  path: string,
  depth: number,
  run: Run,
  seen: Seen | undefined,
): boolean {
  const names = Object.keys(value).filter((name) => value[name] !== undefined);
  const has = (name: string): boolean => Object.hasOwn(value, name) && value[name] !== undefined;
  for (const name of node.required ?? []) {
    if (!has(name)) return fail(run, path + "/" + name, "is required");
  }
  if (names.length < (node.minProperties ?? 0))
    return fail(run, path, "must have at least " + node.minProperties + " properties");
  if (names.length > (node.maxProperties ?? Infinity))
    return fail(run, path, "must have at most " + node.maxProperties + " properties");
  const known = propertiesOf(node);
  for (const name of names) {
    const at = path + "/" + name;
    if (
      node.propertyNames !== undefined &&
      !quietly(run, () => holds(node.propertyNames as number, name, at, depth + 1, run, undefined))
    ) {
      return fail(run, at, "has a name that is not allowed");
    }
    const ids: number[] = [];
    const own = known.get(name);
    if (own !== undefined) ids.push(own);
    for (const [pattern, id] of node.patternProperties ?? []) if (matches(pattern, name, run)) ids.push(id);
    if (ids.length === 0 && node.additionalProperties !== undefined) ids.push(node.additionalProperties);
    if (ids.length > 0) seen?.names.add(name);
    for (const id of ids) if (!holds(id, value[name], at, depth + 1, run, undefined)) return false;
  }
  for (const [name, wanted] of node.dependentRequired ?? []) {
    const missing = has(name) ? wanted.find((other) => !has(other)) : undefined;
    if (missing !== undefined) return fail(run, path + "/" + missing, "is required beside " + name);
  }
  for (const [name, id] of node.dependentSchemas ?? []) {
    if (has(name) && !holds(id, value, path, depth + 1, run, seen)) return false;
  }
  return true;
}

const indexed = new WeakMap<CheckNode, Map<string, number>>();

function propertiesOf(node: CheckNode): Map<string, number> {
  let found = indexed.get(node);
  if (found === undefined) {
    found = new Map(node.properties);
    indexed.set(node, found);
  }
  return found;
}

function together(
  node: CheckNode,
  value: unknown,
  path: string,
  depth: number,
  run: Run,
  seen: Seen | undefined,
): boolean {
  for (const id of node.all ?? []) if (!holds(id, value, path, depth + 1, run, seen)) return false;
  const fits = (id: number, into: Seen | undefined): boolean =>
    quietly(run, () => holds(id, value, path, depth + 1, run, into));
  if (node.any) {
    // With something to remember, every branch that fits counts; otherwise the first is enough.
    let fitting = 0;
    for (const id of node.any) {
      if (fits(id, seen)) fitting++;
      if (fitting > 0 && !seen) break;
    }
    if (fitting === 0) return fail(run, path, "fits none of the alternatives");
  }
  if (node.one) {
    const fitting = node.one.filter((id) => fits(id, undefined));
    if (fitting.length !== 1) return fail(run, path, "must fit exactly one alternative, not " + fitting.length);
    if (seen) fits(fitting[0] as number, seen);
  }
  if (node.not !== undefined && fits(node.not, undefined)) return fail(run, path, "must not be what it is");
  if (node.if !== undefined) {
    const next = fits(node.if, seen) ? node.then : node.else;
    if (next !== undefined && !holds(next, value, path, depth + 1, run, seen)) return false;
  }
  return true;
}

function leftovers(node: CheckNode, value: unknown, path: string, depth: number, run: Run, seen: Seen): boolean {
  if (node.unevaluatedProperties !== undefined && isObject(value) && !seen.allNames) {
    for (const name of Object.keys(value)) {
      if (seen.names.has(name) || value[name] === undefined) continue;
      if (!holds(node.unevaluatedProperties, value[name], path + "/" + name, depth + 1, run, undefined)) return false;
    }
    seen.allNames = true;
  }
  if (node.unevaluatedItems !== undefined && Array.isArray(value) && !seen.allItems) {
    for (const [i, item] of value.entries()) {
      if (seen.items.has(i)) continue;
      if (!holds(node.unevaluatedItems, item, path + "/" + i, depth + 1, run, undefined)) return false;
    }
    seen.allItems = true;
  }
  return true;
}

/** A branch that does not fit is not a problem by itself. Running out of steps is. */
function quietly(run: Run, ask: () => boolean): boolean {
  const before = run.problem;
  const answer = ask();
  if (run.steps >= 0) run.problem = before;
  return answer && run.steps >= 0;
}

function same(a: unknown, b: unknown, run: Run): boolean {
  if (typeof a !== "object" || a === null || typeof b !== "object" || b === null) return a === b;
  return keyOf(a, run) === keyOf(b, run);
}

/** Equal exactly for equal values: 1 and 1.0 are equal, the order of fields does not count. */
function keyOf(value: unknown, run: Run): string {
  run.steps--;
  if (Array.isArray(value)) return "[" + value.map((item) => keyOf(item, run)).join() + "]";
  if (!isObject(value)) return JSON.stringify(value) ?? "undefined";
  const names = Object.keys(value).filter((name) => value[name] !== undefined);
  return (
    "{" +
    names
      .sort()
      .map((name) => JSON.stringify(name) + ":" + keyOf(value[name], run))
      .join() +
    "}"
  );
}
