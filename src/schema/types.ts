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
