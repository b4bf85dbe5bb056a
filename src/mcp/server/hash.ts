// Definitions are frozen and hashed when they are made: what a permit was given for is what runs.

import { createHash } from "node:crypto";
import type { JsonValue } from "../index.js";
import { keyOf } from "../../schema/index.js";
import type { ToolDefinition } from "./types.js";

/** SHA-256, in hex, over the definition as JSON with sorted keys. */
export function definitionHash(definition: ToolDefinition): string {
  return createHash("sha256")
    .update(keyOf(definition as unknown as JsonValue))
    .digest("hex");
}
