// A tool of one application. What goes wrong inside is told to the operator; the caller hears what it can act on.

import { asFault, Fault } from "../mcp/index.js";
import { type CallContext, defineTool, type SchemaLike, type Tool, type ToolSpec } from "../mcp/server/index.js";
import type { CoreApplication, CoreServices } from "./application.js";

export interface ToolOwner {
  readonly app: Pick<CoreApplication, "id">;
  readonly services: Pick<CoreServices, "log">;
}

export function ownTool<const S extends SchemaLike, const O extends SchemaLike | undefined = undefined>(
  { app, services }: ToolOwner,
  spec: ToolSpec<S, O>,
): Tool {
  return defineTool<S, O>({
    ...spec,
    // Each has its own bounds: a repository with history, an allow list, the host's policy as a voice in the gate.
    noGuardrailRequired: true,
    metadata: { category: "core", ...spec.metadata },
    handler: async (args, context) => {
      // The router already chose by application; a mistake there must not open a door here.
      if (context.app !== app.id) throw new Fault("ToolNotFound", `there is no tool \`${spec.name}\``);
      try {
        return await spec.handler(args, context);
      } catch (error) {
        throw told(spec.name, error, context, services);
      }
    },
  });
}

function told(tool: string, error: unknown, context: CallContext, services: ToolOwner["services"]): unknown {
  if (context.signal.aborted) return error;
  const fault = asFault(error);
  if (fault.cause !== undefined) {
    services.log.log("error", `${tool} failed`, { app: context.app, cause: fault.cause }, context.traceId);
  }
  return fault;
}
