// The guardrails of an application's document. Each is a JavaScript file of the data directory, run in this process, or
// a tool of the application, called through the pipeline like every other call.

import { type Guardrail, type GuardrailCall, type GuardrailCallback, guardrailAgent } from "../policy/index.js";
import type { JsonObject } from "../mcp/index.js";
import type { ToolResult } from "../mcp/server/index.js";
import type { GuardrailEntry } from "../storage/index.js";

export interface GuardrailSources {
  /** Loads the callback of a file. Rejects with the reason when it cannot be used. */
  load?(file: string): Promise<GuardrailCallback>;
  /** Calls a tool of the application as `agent`. Rejects when the call is denied or fails. */
  call(tool: string, input: JsonObject, agent: string): Promise<ToolResult>;
  /** Receives what the operator has to repair; callers do not learn of paths. */
  onProblem(module: string, problem: string): void;
}

/** `applicationGuardrails` never leaves one out: what cannot be loaded blocks every call that it covers. */
export function applicationGuardrails(
  entries: readonly GuardrailEntry[],
  sources: GuardrailSources,
): Promise<Guardrail[]> {
  return Promise.all(
    entries.map(async ({ id, agent = "*", tool, module, call }) => ({
      id,
      agent,
      tool,
      callback: module === undefined ? byTool(id, call ?? "", sources) : await byModule(module, sources),
    })),
  );
}

async function byModule(module: string, { load, onProblem }: GuardrailSources): Promise<GuardrailCallback> {
  try {
    if (!load) throw new Error("this gateway loads no guardrail modules");
    return await load(module);
  } catch (error) {
    onProblem(module, (error as Error).message);
    return () => `guardrail module \`${module}\` cannot be loaded; the operator finds the reason in the log`;
  }
}

function byTool(id: string, tool: string, { call }: GuardrailSources): GuardrailCallback {
  const own = guardrailAgent(id);
  return async (guarded) => {
    // Calls of guardrails are decided by policy alone: two guardrails that guard each other's calls would not end.
    if (guarded.agent.startsWith(guardrailAgent(""))) return undefined;
    const result = await call(tool, inputOf(guarded), own);
    return reasonOf(id, result);
  };
}

function inputOf({ app, agent, tool, intentId, arguments: args, forwarded }: GuardrailCall): JsonObject {
  return { app, agent, tool, intentId, arguments: args, forwarded };
}

/** A tool permits with `{ "allow": true }` as structured content. Everything else blocks. */
function reasonOf(id: string, { isError, structuredContent, content }: ToolResult): string | undefined {
  const answer = structuredContent as { allow?: unknown; reason?: unknown } | undefined;
  if (isError !== true && answer?.allow === true) return undefined;
  if (typeof answer?.reason === "string" && answer.reason !== "") return answer.reason;
  const text = content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  return text || `guardrail \`${id}\` did not answer {"allow": true}`;
}
