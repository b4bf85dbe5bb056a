// Definitions are frozen and hashed when they are made: what a permit was given for is what runs.

import { createHash } from "node:crypto";
import type { JsonValue } from "../protocol/index.js";
import { DefinitionError } from "./errors.js";
import { keyOf } from "./schema/equal.js";
import type { ToolDefinition } from "./types.js";

/** SHA-256, in hex, over the definition as JSON with sorted keys. */
export function definitionHash(definition: ToolDefinition): string {
  return createHash("sha256")
    .update(keyOf(definition as unknown as JsonValue))
    .digest("hex");
}

/** Nesting beyond any honest definition; the walks over one recurse. */
const MAX_DEPTH = 200;

/** A deep copy that nobody can change, and that holds nothing but JSON. */
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
  if (depth > MAX_DEPTH) throw new DefinitionError(`${label} is nested deeper than ${MAX_DEPTH} levels`);
  if (typeof value === "object" && value !== null) {
    Object.freeze(value);
    for (const child of Object.values(value)) freeze(child, label, depth + 1);
  }
  return value;
}
