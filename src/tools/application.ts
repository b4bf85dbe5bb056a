// What the core tools know: one application's own settings as data, and a few services that were bound to this
// application before they came here. Nothing in this module takes an application's name and looks something up by it.

import type { Sandbox } from "../host/index.js";
import { asFault, Fault, type JsonObject } from "../mcp/index.js";
import { type CallContext, defineTool, type SchemaLike, type Tool, type ToolSpec } from "../mcp/server/index.js";
import type { Logger, Telemetry } from "../telemetry/index.js";
import type { UsageRecord } from "./llm/settings.js";
import type { StateSettings } from "./state/settings.js";
import type { RuntimeValues, StoredHistory } from "./state/stored.js";

/** A part that is left out has no tools. */
export interface CoreApplication {
  readonly id: string;
  /** What `core.framework.getConfigValue` reads. No secrets: a caller sees all of it. */
  readonly config?: JsonObject | undefined;
  readonly state?: StateSettings | undefined;
  /** The provider of `core.llm.generate`; see `LlmSettings`. */
  readonly llm?: JsonObject | undefined;
  /** Commands and their limits, in the words of `policy.yaml`. They run with the directories of `filesystem`. */
  readonly linux?: JsonObject | undefined;
  /** Directories, in the words of `policy.yaml`. */
  readonly filesystem?: JsonObject | undefined;
}

/** Everything here is this application's own. */
export interface CoreServices {
  /** The operator's log. */
  readonly log: Pick<Logger, "log">;
  /** The span of a call of this application: `telemetry.note`. */
  readonly note?: Telemetry["note"];
  readonly values?: RuntimeValues;
  /** Of the definition files; `state` needs it. */
  readonly history?: StoredHistory;
  /** The one way out to the network: `createOutbound(dialer).fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Puts this application's secrets where a text says `${secret:NAME}`. */
  readonly resolve?: (text: string) => Promise<string> | string;
  /** Told after every answer of a model. */
  readonly usage?: (record: UsageRecord) => void;
  /** One for each application, so that none waits in another's queue. Closed by its maker. */
  readonly sandbox?: Sandbox;
  /** Keys, ledger, store, state of every application: no directory of the application may reach them. */
  readonly protectedPaths?: readonly string[];
}

/** Settings that cannot be used; found when an application is loaded, never in a call. */
export class CoreSettingsError extends Error {
  readonly code = "INVALID_SETTINGS";
  constructor(application: string, problem: string) {
    super(`application \`${application}\`: ${problem}`);
    this.name = "CoreSettingsError";
  }
}

// A tool of one application. What goes wrong inside is logged for the operator; the caller gets what it can act on.

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
    // Each has its own bounds: a repository with history, an allow list, the host's policy as a check of the gate.
    noGuardrailRequired: true,
    metadata: { category: "core", ...spec.metadata },
    handler: async (args, context) => {
      // The router already chose by application; a mistake there must not open a tool here.
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

/** `record` is the JSON Schema of an object with these properties and no others. */
export function closedRecord<
  const P extends Readonly<Record<string, unknown>>,
  const R extends readonly (keyof P & string)[],
>(properties: P, required: R) {
  return { type: "object", properties, required, additionalProperties: false } as const;
}
