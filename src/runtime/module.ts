// `portcullis serve MODULE`: the tools of a module as an application of this process, with the policy, guardrails,
// checks and limits that its author chose.

import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";
import type { GatewayLimits, InProcessApplication } from "../gateway/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { pathText, type ShapeProblem } from "../mcp/index.js";
import { ServerBuilder, type ServerDefinition, type Tool } from "../mcp/server/index.js";
import type { Check, FlowLabels, Gate, GateOptions, Guardrail, Limit } from "../policy/index.js";
import { flowShape } from "../storage/index.js";
import { VERSION } from "./environment.js";
import { marked, type StarterPolicy } from "./starters.js";

export interface ServedModule extends InProcessApplication {
  /** The author's bounds; flags of the operator come after them. */
  readonly gatewayLimits: Partial<GatewayLimits>;
  readonly starterPolicy?: StarterPolicy;
  /** Where the module was loaded from. */
  readonly file?: string;
}

/** The demonstration tools, for a data directory without applications. */
export function demonstration(): ServedModule {
  return { server: demoServer(VERSION).server, gatewayLimits: {}, starterPolicy: DEMO_STARTER };
}

/** By its shape, not its class: the module may have loaded another copy of the package. */
interface LoadedServer extends ServerDefinition {
  readonly runOptions?: {
    readonly policy?: GateOptions["policy"];
    readonly guardrails?: readonly Guardrail[];
    readonly rateLimits?: readonly Limit[];
    readonly checks?: readonly Check[];
    readonly flow?: FlowLabels;
    readonly limits?: Partial<GatewayLimits>;
    readonly gate?: Gate;
  };
}

async function loadServer(module: string): Promise<LoadedServer> {
  if (!existsSync(module)) {
    const help =
      "name a JavaScript file that exports a server, or none to serve the applications of the data directory";
    throw new CliError(`there is no module ${module}`, EXIT.error, help);
  }
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
  const starterPolicy = { name: "module.cedar", text: marked(starterPolicyFor(app, [...server.tools.values()])) };
  const { policy, guardrails, rateLimits, checks, flow, limits: gatewayLimits = {}, gate } = server.runOptions ?? {};
  if (gate !== undefined || (policy !== undefined && typeof policy !== "string")) {
    throw new CliError(
      `${module} brings a gate or a loaded policy, which cannot be combined with the policies of the operator`,
      EXIT.error,
      "pass `policy` to createServer as Cedar text",
    );
  }
  return {
    server,
    file: module,
    gatewayLimits,
    ...(policy === undefined ? { starterPolicy } : { policies: { "module.cedar": policy } }),
    ...(guardrails ? { guardrails } : {}),
    ...(checks ? { checks } : {}),
    ...(flow ? { flow: checkedFlow(module, flow) } : {}),
    ...(rateLimits ? { limits: rateLimits } : {}),
  };
}

function checkedFlow(module: string, flow: FlowLabels): FlowLabels {
  const problems: ShapeProblem[] = [];
  const checked = flowShape.check(flow, ["flow"], problems);
  const [first] = problems;
  if (checked !== undefined && !first) return checked;
  throw new CliError(`${module}: ${first ? `${pathText(first.path)}: ${first.message}` : "flow is not valid"}`);
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
  parts.push(`@id("resources-and-prompts-of-the-module")
permit (
  principal in App::${JSON.stringify(app)},
  action in [Action::"resources/read", Action::"resources/subscribe", Action::"prompts/get", Action::"completion/complete"],
  resource
);`);
  return `${parts.join("\n\n")}\n`;
}

const MAX_NOTES = 1_000;

interface DemoServer {
  readonly server: ServerBuilder;
  /** The effects of the tools: a denied call has none. */
  readonly notes: ReadonlyMap<string, string>;
}

export function demoServer(version: string): DemoServer {
  const notes = new Map<string, string>();
  const server = new ServerBuilder({
    name: "portcullis-demo",
    version,
    title: "Portcullis demonstration",
    instructions: "Notes that live in memory, a clock and a sum. Deleting a note needs an approval.",
  });
  const open = { noGuardrailRequired: true, tags: ["demo"] };
  server
    .tool("clock.now", "The time, in UTC.", { type: "object", properties: {} }, () => new Date().toISOString(), {
      ...open,
      annotations: { readOnlyHint: true },
    })
    .tool(
      "math.add",
      "Adds two integers.",
      {
        type: "object",
        properties: { a: { type: "integer" }, b: { type: "integer" } },
        required: ["a", "b"],
        additionalProperties: false,
      },
      ({ a, b }) => ({ structuredContent: { sum: a + b } }),
      { ...open, output: { type: "object", properties: { sum: { type: "integer" } }, required: ["sum"] } },
    )
    .tool(
      "notes.write",
      "Writes a note. The policy allows titles that begin with demo/.",
      {
        type: "object",
        properties: {
          title: { type: "string", minLength: 1, maxLength: 80 },
          text: { type: "string", maxLength: 4_000 },
        },
        required: ["title", "text"],
        additionalProperties: false,
      },
      ({ title, text }) => {
        if (notes.size >= MAX_NOTES && !notes.has(title)) throw new Error(`there are ${MAX_NOTES} notes already`);
        notes.set(title, text);
        return `wrote ${title}`;
      },
      open,
    )
    .tool(
      "notes.list",
      "Lists the titles of all notes.",
      { type: "object", properties: {} },
      () => [...notes.keys()].join("\n") || "no notes yet",
      open,
    )
    .tool(
      "notes.delete",
      "Deletes a note. An approver has to permit it.",
      { type: "object", properties: { title: { type: "string" } }, required: ["title"], additionalProperties: false },
      ({ title }) => (notes.delete(title) ? `deleted ${title}` : `there is no note ${title}`),
      { ...open, annotations: { destructiveHint: true } },
    )
    .tool(
      "shell.run",
      "Would run a shell command; the policy always denies it.",
      { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
      () => {
        throw new Error("this demonstration runs no shell, whatever the policy says");
      },
      open,
    )
    .resource("demo://welcome", "welcome", "Every call through this gateway is decided and written down first.", {
      mimeType: "text/plain",
      description: "What this is",
    })
    .prompt("summarize-notes", "Asks for a summary of the notes.", {}, () => "List the notes and summarize them.");
  return { server, notes };
}

const DEFAULT_POLICY = `// Which caller may call which tool. A saved change applies at once; an invalid file is rejected and the old rules stay.
//
//   permit (principal, action == Action::"tool", resource) when { a condition on context.arguments };
//   forbid ...                                       overrides every permit
//   no matching rule                                 denied
//
// Try:  portcullis policy check                      validate this file
//       portcullis policy explain notes.delete '{"title":"a"}'
//       portcullis audit tail                        show decisions with their reasons

@id("read-things")
permit (principal in App::"local", action in [Action::"clock.now", Action::"math.add", Action::"notes.list"], resource);

@id("write-short-notes")
permit (principal in App::"local", action == Action::"notes.write", resource)
when { context.arguments.title like "demo/*" };

// Waits until an approver permits it.
@id("delete-needs-approval")
@outcome("challenge")
@approvers("operators")
@reason("Deleting a note needs an approval.")
forbid (principal, action == Action::"notes.delete", resource)
unless { context.approved };

@id("delete-when-approved")
permit (principal in App::"local", action == Action::"notes.delete", resource);

// Always denied: a forbid overrides every permit.
@id("no-shell")
@reason("Shell commands are not allowed.")
forbid (principal, action == Action::"shell.run", resource);

// Resources and prompts that the demonstration offers.
@id("read-resources")
permit (principal in App::"local", action in [Action::"resources/read", Action::"prompts/get"], resource);
`;

export const DEMO_STARTER: StarterPolicy = { name: "demo.cedar", text: marked(DEFAULT_POLICY) };
