// Values of events as texts: two values are equal exactly when their keys are. Monitors keep nothing else, so their state
// is small, compares by `===` and can be written to a snapshot as it is.

import type { JsonValue } from "../../mcp/index.js";

/** Equal to nothing, not even to itself: a value that is not there. */
export const ABSENT = "\0";

export function stringKey(value: string): string {
  return `"${value}`;
}

export function entityKey(type: string, id: string): string {
  return `@${type}::${JSON.stringify(id)}`;
}

export function setKey(items: readonly string[]): string {
  return JSON.stringify(items);
}

const DECIMAL = /^(-?)(\d+)\.(\d{1,4})$/;

/** `1.5` and `1.50` are one decimal; a text that Cedar does not accept as one stays as it is. */
export function decimalKey(text: string): string {
  const found = DECIMAL.exec(text);
  if (!found) return `.${text}`;
  const [, sign, whole = "", part = ""] = found;
  const scaled = BigInt(whole) * 10_000n + BigInt(part.padEnd(4, "0"));
  const signed = sign === "-" ? -scaled : scaled;
  // JSON has one form for 1 and 1.0, so a whole number has one key.
  return signed % 10_000n === 0n ? String(signed / 10_000n) : `.${signed}`;
}

export function booleanKey(value: boolean): string {
  return value ? "true" : "false";
}

/** The integer of a key; undefined for keys of other types. */
export function integerOf(key: string): bigint | undefined {
  const first = key.charCodeAt(0);
  const isInteger = (first >= 48 && first <= 57) || first === 45;
  return isInteger ? BigInt(key) : undefined;
}

const MAX = 2n ** 63n - 1n;
const MIN = -(2n ** 63n);

/** Into the range of a Long: a total past it counts as its end. */
export function clamp(value: bigint): bigint {
  return value > MAX ? MAX : value < MIN ? MIN : value;
}

/** A JSON value of a caller or a tool; a number with a fraction is a decimal. */
export function jsonKey(value: JsonValue | undefined): string {
  switch (typeof value) {
    case "string":
      return stringKey(value);
    case "boolean":
      return booleanKey(value);
    case "number":
      return Number.isSafeInteger(value) ? (Object.is(value, -0) ? "0" : String(value)) : decimalKey(String(value));
    default:
      if (value === undefined) return ABSENT;
      if (value === null) return "null";
      if (Array.isArray(value)) return setKey(value.map(jsonKey));
      return recordKey(Object.keys(value).map((name) => [name, jsonKey(value[name])]));
  }
}

export function recordKey(entries: readonly (readonly [string, string])[]): string {
  return `{${JSON.stringify([...entries].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))}`;
}
