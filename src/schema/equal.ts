// Equality as JSON Schema means it: 1 and 1.0 are equal, the order of an object's keys does not matter.

import { isJsonObject, type JsonValue } from "../mcp/index.js";
import type { ValidationRun } from "./run.js";

/** Equal values, and only they, have the same key. Strings and objects cannot collide: objects start with a brace. */
export function keyOf(value: JsonValue, run?: ValidationRun): string {
  run?.spend(1);
  if (Array.isArray(value)) return `[${value.map((item) => keyOf(item, run)).join()}]`;
  if (isJsonObject(value)) {
    const members = Object.keys(value)
      .sort()
      .map((name) => `${JSON.stringify(name)}:${keyOf(value[name] as JsonValue, run)}`);
    return `{${members.join()}}`;
  }
  if (typeof value === "string") run?.spend(value.length >> 4);
  // JSON has one zero; JavaScript has two that print alike.
  return JSON.stringify(value);
}

/** A set of allowed values that is asked once per check: plain values directly, the rest by key. */
export class ValueSet {
  readonly #plain = new Set<JsonValue>();
  readonly #keys = new Set<string>();
  constructor(values: readonly JsonValue[]) {
    for (const value of values) {
      if (value !== null && typeof value === "object") this.#keys.add(keyOf(value));
      else this.#plain.add(value);
    }
  }
  has(value: JsonValue, run: ValidationRun): boolean {
    if (value === null || typeof value !== "object") return this.#plain.has(value);
    return this.#keys.size > 0 && this.#keys.has(keyOf(value, run));
  }
}
