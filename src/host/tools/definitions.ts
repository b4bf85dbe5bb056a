// The three tools as MCP lists them. There are no others.

import type { JsonObject } from "../../mcp/index.js";
import type { ToolName } from "../audit.js";
import { cmdRunInput, cmdRunOutput, fsReadInput, fsReadOutput, fsWriteInput, fsWriteOutput } from "./shapes.js";

export interface HostToolDefinition {
  readonly name: ToolName;
  readonly title: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema: JsonObject;
  readonly annotations: {
    readonly readOnlyHint: boolean;
    readonly destructiveHint: boolean;
    readonly idempotentHint: boolean;
    readonly openWorldHint: boolean;
  };
}

export const hostTools: readonly HostToolDefinition[] = [
  {
    name: "fs.read",
    title: "Read a file",
    description: "Reads a regular file inside an allowed root, whole or in parts, as text or base64.",
    inputSchema: fsReadInput.schema,
    outputSchema: fsReadOutput,
    annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  },
  {
    name: "fs.write",
    title: "Write a file",
    description: "Writes a whole file inside a write zone: completely or not at all.",
    inputSchema: fsWriteInput.schema,
    outputSchema: fsWriteOutput,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  {
    name: "cmd.run",
    title: "Run a command",
    description:
      "Runs a command of the operator's catalog without a shell, in a sandbox, with limits on time and output.",
    inputSchema: cmdRunInput.schema,
    outputSchema: cmdRunOutput,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
];
