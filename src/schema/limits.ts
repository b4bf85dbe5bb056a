// Schemas come from strangers. Every size of theirs has a limit, far above what honest tools use: the largest
// schema among 1,239 published tools has 49 kB, 1,418 values, 24 levels, 79 references and 34 enum values.

import { isJsonObject, type JsonValue } from "../mcp/index.js";
import { SchemaError } from "./errors.js";
import { escapePointer } from "./documents/index.js";

export interface SchemaLimits {
  /** JSON values in a schema, of any kind. */
  maxValues: number;
  /** Levels of JSON nesting in a schema. */
  maxDepth: number;
  /** Characters of all strings and keys in a schema together. */
  maxCharacters: number;
  maxReferences: number;
  maxEnum: number;
  maxPatterns: number;
  /** Levels of JSON nesting in a value under validation. */
  maxValueDepth: number;
  /** Work for one validation; roughly one unit for each keyword on each value, and for each 16 characters. */
  maxSteps: number;
  maxProblems: number;
  /** Time for everything asynchronous in one validation. */
  timeoutMs: number;
}

export const DEFAULT_SCHEMA_LIMITS: Readonly<SchemaLimits> = {
  maxValues: 20_000,
  maxDepth: 100,
  maxCharacters: 2_000_000,
  maxReferences: 2_000,
  maxEnum: 10_000,
  maxPatterns: 200,
  maxValueDepth: 128,
  maxSteps: 3_000_000,
  maxProblems: 20,
  timeoutMs: 5_000,
};

/** Walks a schema before anything else touches it, without recursion, so that nothing later can be surprised. */
export function checkBounds(schema: JsonValue, limits: SchemaLimits): void {
  let values = 0;
  let characters = 0;
  let references = 0;
  const pending: { value: JsonValue; pointer: string; depth: number }[] = [{ value: schema, pointer: "", depth: 0 }];
  for (let item = pending.pop(); item !== undefined; item = pending.pop()) {
    const { value, pointer, depth } = item;
    if (++values > limits.maxValues) throw new SchemaError("", `has more than ${limits.maxValues} values`);
    if (depth > limits.maxDepth) throw new SchemaError(pointer, `is nested deeper than ${limits.maxDepth} levels`);
    if (typeof value === "string") characters += value.length;
    if (Array.isArray(value)) {
      if (pointer.endsWith("/enum") && value.length > limits.maxEnum) {
        throw new SchemaError(pointer, `has ${value.length} values; the limit is ${limits.maxEnum}`);
      }
      for (const [index, child] of value.entries()) {
        pending.push({ value: child, pointer: `${pointer}/${index}`, depth: depth + 1 });
      }
    } else if (isJsonObject(value)) {
      for (const [key, child] of Object.entries(value)) {
        characters += key.length;
        if (key === "$ref") references++;
        pending.push({ value: child, pointer: `${pointer}/${escapePointer(key)}`, depth: depth + 1 });
      }
    }
    if (characters > limits.maxCharacters) {
      throw new SchemaError("", `has more than ${limits.maxCharacters} characters`);
    }
    if (references > limits.maxReferences) {
      throw new SchemaError("", `has more than ${limits.maxReferences} references`);
    }
    if (pending.length > limits.maxValues) throw new SchemaError("", `has more than ${limits.maxValues} values`);
  }
}
