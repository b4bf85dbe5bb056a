// `portcullis serve MODULE`: the tools of a module as an application of this process, with the policy, guardrails,
// checks and limits that its author chose.

import { pathToFileURL } from "node:url";
import type { Gate, GateOptions, Guardrail, Limit, Check } from "../policy/index.js";
import type { GatewayLimits, InProcessApplication } from "../gateway/index.js";
import type { ServerDefinition, Tool } from "../mcp/server/index.js";
import { DEFAULT_POLICY } from "./default-policy.js";
import { demoServer } from "./demo-tools.js";
import { CliError, EXIT } from "../lib/exit.js";
import type { StarterPolicy } from "./data-directory.js";
import { VERSION } from "./version.js";

export interface ServedModule extends InProcessApplication {
  /** The author's bounds; flags of the operator come after them. */
  readonly gatewayLimits: Partial<GatewayLimits>;
  readonly starterPolicy?: StarterPolicy;
}

/** The demonstration tools, for a data directory without applications. */
export function demonstration(): ServedModule {
  const starterPolicy = { name: "demo.cedar", text: DEFAULT_POLICY };
  return { server: demoServer(VERSION).server, gatewayLimits: {}, starterPolicy };
}

/** By its shape, not its class: the module may have loaded another copy of the package. */
interface LoadedServer extends ServerDefinition {
  readonly runOptions?: {
    readonly policy?: GateOptions["policy"];
    readonly guardrails?: readonly Guardrail[];
    readonly rateLimits?: readonly Limit[];
    readonly voices?: readonly Check[];
    readonly limits?: Partial<GatewayLimits>;
    readonly gate?: Gate;
  };
}

async function loadServer(module: string): Promise<LoadedServer> {
  const loaded = (await import(pathToFileURL(module).href).catch((error: Error) => {
    throw new CliError(`cannot load ${module}: ${error.message}`);
  })) as { default?: ServerDefinition };
  if (!(loaded.default?.tools instanceof Map)) {
    throw new CliError(`${module} has no server as its default export`, EXIT.error, "export default createServer(…)");
  }
  return loaded.default;
}

export async function loadModule(module: string, app: string): Promise<ServedModule> {
  const server = await loadServer(module);
  const starterPolicy = { name: "module.cedar", text: starterPolicyFor(app, [...server.tools.values()]) };
  const { policy, guardrails, rateLimits, voices, limits: gatewayLimits = {}, gate } = server.runOptions ?? {};
  if (gate !== undefined || (policy !== undefined && typeof policy !== "string")) {
    throw new CliError(
      `${module} brings a gate or a loaded policy, which cannot be combined with the policies of the operator`,
      EXIT.error,
      "pass `policy` to createServer as Cedar text",
    );
  }
  return {
    server,
    gatewayLimits,
    ...(policy === undefined ? { starterPolicy } : { policies: { "module.cedar": policy } }),
    ...(guardrails ? { guardrails } : {}),
    ...(voices ? { checks: voices } : {}),
    ...(rateLimits ? { limits: rateLimits } : {}),
  };
}

/** Closed by default and still useful: what only reads is permitted, the rest needs an approval. */
function starterPolicyFor(app: string, tools: readonly Tool[]): string {
  const names = (isReading: boolean): string[] =>
    tools
      .filter(({ definition }) => (definition.annotations?.readOnlyHint === true) === isReading)
      .map(({ definition }) => `Action::${JSON.stringify(definition.name)}`);
  const [reading, changing] = [names(true), names(false)];
  const list = (actions: readonly string[]): string => `[\n    ${actions.join(",\n    ")}\n  ]`;
  const parts = [
    `// Who may call what. Written by \`portcullis serve\` from the tools of the module: edit it, and it applies at once.
// Without a matching rule a call is denied. A forbid wins over every permit.`,
  ];
  if (reading.length > 0) {
    parts.push(`// Tools whose author declared them read-only.
@id("read")
permit (principal in App::${JSON.stringify(app)}, action in ${list(reading)}, resource);`);
  }
  if (changing.length > 0) {
    parts.push(`// All other tools need the approval of an operator for each call. Remove this rule to permit them at once.
@id("ask-before-changing")
@outcome("challenge")
@approvers("operators")
@reason("This tool may change something: an operator has to approve the call.")
forbid (principal, action in ${list(changing)}, resource)
unless { context.approved };

@id("change-when-approved")
permit (principal in App::${JSON.stringify(app)}, action in ${list(changing)}, resource);`);
  }
  parts.push(`@id("read-resources-and-prompts")
permit (
  principal in App::${JSON.stringify(app)},
  action in [Action::"resources/read", Action::"resources/subscribe", Action::"prompts/get", Action::"completion/complete"],
  resource
);`);
  return `${parts.join("\n\n")}\n`;
}
