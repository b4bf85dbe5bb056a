// The arguments of a call of the host, as an operator writes them in a command.

import type { JsonObject } from "../../mcp/index.js";
import { jsonArguments } from "../options.js";

/** `fs.read` and `fs.write` take a path as it stands, so that no JSON has to be written for it. */
export function hostArguments(tool: string, text: string | undefined): JsonObject {
  const isPath = text !== undefined && tool.startsWith("fs.") && !/^\s*\{/.test(text) && text !== "-";
  if (!isPath) return jsonArguments(text);
  return { path: text, ...(tool === "fs.write" ? { data: "", overwrite: true } : {}) };
}
