// Plain words for what a value is and what would be right.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import type { JsonSchema } from "./types.js";

const ARTICLES: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  integer: "an integer",
  boolean: "true or false",
  null: "null",
  array: "an array",
  object: "an object",
};

export function typeWords(types: readonly string[]): string {
  return listWords(types.map((type) => ARTICLES[type] ?? type));
}

/** What a value is. Never the value itself: words travel to logs, arguments do not. */
export function jsonKindOf(value: JsonValue): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  switch (typeof value) {
    case "number":
      return Number.isInteger(value) ? "an integer" : "a number";
    case "boolean":
      return "a boolean";
    case "string":
      return value === "" ? "an empty string" : "a string";
    default:
      return "an object";
  }
}

/** "1-5", "at least 1", "at most 5", "exactly 3"; undefined when nothing is bounded. */
export function range(min: JsonValue | undefined, max: JsonValue | undefined): string | undefined {
  const low = typeof min === "number" ? min : undefined;
  const high = typeof max === "number" ? max : undefined;
  if (low !== undefined && high !== undefined) return low === high ? `exactly ${low}` : `${low}-${high}`;
  if (low !== undefined) return `at least ${low}`;
  return high === undefined ? undefined : `at most ${high}`;
}

export function numberRange(schema: JsonObject): string | undefined {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  const parts = [];
  if (typeof minimum === "number" && typeof maximum === "number") parts.push(`from ${minimum} to ${maximum}`);
  else if (typeof minimum === "number") parts.push(`at least ${minimum}`);
  else if (typeof maximum === "number") parts.push(`at most ${maximum}`);
  if (typeof exclusiveMinimum === "number") parts.push(`greater than ${exclusiveMinimum}`);
  if (typeof exclusiveMaximum === "number") parts.push(`less than ${exclusiveMaximum}`);
  return parts.length === 0 ? undefined : parts.join(", ");
}

/** What a schema asks for, in a few words. */
export function valueSummary(schema: JsonSchema | undefined): string | undefined {
  if (!isJsonObject(schema)) return undefined;
  if (schema.const !== undefined) return literalText(schema.const);
  if (Array.isArray(schema.enum)) return `one of ${listWords(schema.enum.slice(0, 8).map(literalText), "or")}`;
  const types = typeof schema.type === "string" ? [schema.type] : schema.type;
  if (!Array.isArray(types)) return undefined;
  const bounds = types.includes("string")
    ? range(schema.minLength, schema.maxLength)?.concat(" characters")
    : (numberRange(schema) ?? range(schema.minItems, schema.maxItems)?.concat(" items"));
  return bounds === undefined ? typeWords(types.map(String)) : `${typeWords(types.map(String))}, ${bounds}`;
}

export function literalText(value: JsonValue): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

export function listWords(items: readonly string[], joint: "or" | "and" = "or"): string {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} ${joint} ${items.at(-1)}`;
}
