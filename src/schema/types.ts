// What a schema is to the rest of the module: its limits, the problems it reports, the errors of its author.

import type { JsonObject } from "../mcp/index.js";

/** `JsonSchema` is a schema of any dialect: an object, or a boolean. */
export type JsonSchema = JsonObject | boolean;

/** `Problem` is one violation of a schema, with its place. */
export interface Problem {
  /** JSON Pointer into the arguments; "" is the arguments themselves. */
  path: string;
  message: string;
  /** What would be right. */
  expected?: string;
  suggestion?: string;
}

export type Validation = { ok: true } | { ok: false; problems: Problem[] };

/** `DefinitionError` rejects a tool, resource, prompt or server that cannot be offered as it is written. */
export class DefinitionError extends Error {
  readonly code: string = "INVALID_DEFINITION";
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "DefinitionError";
  }
}

/** `SchemaError` rejects a JSON Schema; `pointer` names the place in it. */
export class SchemaError extends DefinitionError {
  override readonly code = "INVALID_SCHEMA";
  readonly pointer: string;
  constructor(pointer: string, message: string) {
    super(`schema${pointer === "" ? "" : ` at ${pointer}`}: ${message}`);
    this.name = "SchemaError";
    this.pointer = pointer;
  }
}

/**
 * `SchemaLimits` bound schemas, which come from strangers, far above what honest tools use: the largest schema among 1,239
 * published tools has 49 kB, 1,418 values, 24 levels, 79 references and 34 enum values.
 */
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

/** Nesting beyond any honest definition; the walks over one recurse. */
const MAX_FROZEN_DEPTH = 200;

/** `frozenJson` returns a deeply frozen copy that holds nothing but JSON: what was checked and hashed is what is used. */
export function frozenJson<T>(value: T, label: string): T {
  let copy: T;
  try {
    copy = JSON.parse(JSON.stringify(value)) as T;
  } catch (error) {
    throw new DefinitionError(`${label} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  return freeze(copy, label, 0);
}

function freeze<T>(value: T, label: string, depth: number): T {
  if (depth > MAX_FROZEN_DEPTH) throw new DefinitionError(`${label} is nested deeper than ${MAX_FROZEN_DEPTH} levels`);
  if (typeof value === "object" && value !== null) {
    Object.freeze(value);
    for (const child of Object.values(value)) freeze(child, label, depth + 1);
  }
  return value;
}
