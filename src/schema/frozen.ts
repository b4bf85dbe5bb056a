// Deep copies that cannot be changed: what was checked and hashed is what is used.

import { DefinitionError } from "./errors.js";

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
