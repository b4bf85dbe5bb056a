// The tools of a server as commands and snapshots know them.

import { toolSummaries } from "../gateway/index.js";
import type { ServerDefinition } from "../mcp/server/index.js";
import type { ServedTool } from "./checks.js";

export function servedTools(server: ServerDefinition, readOnly: ReadonlySet<string> = new Set()): ServedTool[] {
  return toolSummaries(server, readOnly).map((tool) => ({
    ...tool,
    noGuardrailRequired: server.tools.get(tool.name)?.noGuardrailRequired ?? false,
  }));
}
