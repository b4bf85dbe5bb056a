// The host as an application: three tools as one server in this process, whose policy.yaml is one check.

import type { InProcessApplication } from "../../gateway/index.js";
import {
  type AuditSummary,
  deniedSummary,
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  type HostOutcome,
  type HostToolDefinition,
  hostTools,
  type Policy,
  policyFor,
  type ToolName,
} from "../../host/index.js";
import type { CliError } from "../../lib/exit.js";
import { ERRORS, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { type CallContext, defineTool, ServerBuilder, text } from "../../mcp/server/index.js";
import { type CheckFile, type CheckResult, deny, type LoadedCheck, PolicyInvalid } from "../../policy/index.js";
import { hostCheckResult, hostFault, outputProgress } from "../../tools/index.js";
import { VERSION } from "../environment.js";
import type { HostFiles } from "./config/files.js";
import { checkHostPolicy, requireClient, requireClosed } from "./config/read.js";
import { decideHostCall } from "./decide.js";
import { HOST_APP, HOST_TOOLS } from "./starter-policy.js";

interface HostApplicationOptions {
  readonly files: HostFiles;
  /** The only caller: the client that started this host, by the name its starter gave. */
  readonly agent: string;
  /** The profile that the operator named; a policy without it is refused. */
  readonly client?: string | undefined;
  /** The policy of the first text, which was loaded before anything was opened. */
  readonly first: { readonly text: string; readonly policy: Policy };
  readonly audit: (line: AuditSummary) => void;
  /** Called when another policy.yaml is in force. */
  readonly onPolicy: (policy: Policy) => void;
}

interface HostApplication {
  readonly inProcess: InProcessApplication & { readonly app: string };
  readonly checkFile: CheckFile;
}

/** Longer than the longest time a command may be given: the host's own clock is the one that counts. */
const TOOL_TIMEOUT_MS = 25 * 60 * 60_000;

export function hostApplication(options: HostApplicationOptions): HostApplication {
  const { agent, audit, first } = options;
  const server = new ServerBuilder({ name: "portcullis-host", version: VERSION, title: "Portcullis host" });
  let current = first.policy;
  const offer = (): void => {
    for (const definition of hostTools) {
      server.removeTool(definition.name);
      server.tool(hostTool(definition, policyFor(current, agent), () => policyFor(current, agent), audit));
    }
  };
  offer();
  const load = (text: string): LoadedCheck => {
    const policy = text === first.text ? first.policy : loadedPolicy(text, options);
    const own = policyFor(policy, agent);
    return {
      file: options.files.config,
      hash: own.hash,
      check: ({ target, arguments: args }) => checkResultOf(own, target.name, args),
      onApplied: () => {
        if (policyFor(current, agent).hash === own.hash) return;
        current = policy;
        offer();
        options.onPolicy(policy);
      },
    };
  };
  return {
    inProcess: {
      app: HOST_APP,
      server,
      plainMethods: HOST_TOOLS,
      onDenied: ({ tool, arguments: args, trace, decision }) => {
        if (!HOST_TOOLS.has(tool)) return;
        const { code } = ERRORS[decision.result.type ?? "PolicyDeny"];
        const rule = decision.rules.map(({ id }) => id).join(", ");
        audit(deniedSummary(tool as ToolName, policyFor(current, agent), args, { code, rule }, trace));
      },
    },
    checkFile: { file: options.files.config, load },
  };
}

/** Throws PolicyInvalid. */
function loadedPolicy(text: string, { files, client }: HostApplicationOptions): Policy {
  const loaded = checkHostPolicy(text, files);
  if (loaded.ok) {
    try {
      requireClosed(files.config);
      requireClient(loaded.policy, client);
      return loaded.policy;
    } catch (error) {
      const { message, help = "" } = error as CliError;
      throw new PolicyInvalid([{ file: files.config, line: 0, column: 0, message, help }]);
    }
  }
  throw new PolicyInvalid(
    loaded.problems.map(({ file, line, column, path, message, remedy }) => {
      return { file, line, column, message: path === "" ? message : `${path}: ${message}`, help: remedy };
    }),
  );
}

function hostTool(
  definition: HostToolDefinition,
  described: Policy,
  policy: () => Policy,
  audit: (line: AuditSummary) => void,
) {
  const { name, title, inputSchema, outputSchema, annotations } = definition;
  return defineTool({
    name,
    title,
    description: describe(definition, described),
    input: inputSchema,
    output: outputSchema,
    annotations: { ...annotations },
    timeoutMs: TOOL_TIMEOUT_MS,
    // What would guard it is policy.yaml, which is a check of its own.
    noGuardrailRequired: true,
    handler: async (args: JsonObject, context: CallContext) => {
      const outcome = await run(name, policy(), args, context);
      audit(outcome.audit);
      if (!outcome.ok) throw hostFault(name, outcome.denial, outcome.partial);
      const structuredContent = outcome.result as JsonValue;
      const readable = readableText(name, args, outcome.result);
      return readable === undefined ? { structuredContent } : { content: [text(readable)], structuredContent };
    },
  });
}

/** A file's text as it is: models read it better than the same text quoted in JSON, and it is not quoted twice. */
function readableText(name: string, args: JsonObject, result: unknown): string | undefined {
  return name === "fs.read" && args.encoding !== "base64" ? (result as { data: string }).data : undefined;
}

async function run(
  name: string,
  policy: Policy,
  args: JsonObject,
  context: CallContext,
): Promise<HostOutcome<unknown>> {
  const { signal, traceId: reqId } = context;
  switch (name) {
    case "fs.read":
      return executeFsRead(policy, args, { signal, reqId });
    case "fs.write":
      return executeFsWrite(policy, args, { signal, reqId });
    default:
      return executeCmdRun(policy, args, { signal, reqId, onOutput: outputProgress(context) });
  }
}

function checkResultOf(policy: Policy, name: string, args: JsonObject): CheckResult {
  const decision = decideHostCall(policy, name, args);
  if (decision === undefined) return deny("PolicyDeny", "host", `the host has no tool \`${name}\``);
  return hostCheckResult(decision);
}

const MAX_CHARS = 4000;

export function describe({ name, description }: HostToolDefinition, policy: Policy): string {
  switch (name) {
    case "fs.read":
      return `${description} ${listed(
        "Directories",
        policy.readableRoots.map((root) => root.written),
      )}`;
    case "fs.write":
      return `${description} ${listed(
        "Directories",
        policy.writableRoots.map((zone) => zone.written),
      )}`;
    case "cmd.run":
      return `${description} ${listed("Commands", [...policy.commands.values()].map(commandWords))}`;
  }
}

function commandWords({ id, description }: { id: string; description: string | undefined }): string {
  return description === undefined ? id : `${id} (${description.trim().replace(/\.$/, "")})`;
}

/** Within a bound: a list of tools is read again and again. */
function listed(what: string, items: readonly string[]): string {
  if (items.length === 0) return `${what}: none.`;
  const shown: string[] = [];
  let chars = 0;
  for (const item of items) {
    chars += item.length + 2;
    if (chars > MAX_CHARS) break;
    shown.push(item);
  }
  const rest = items.length - shown.length;
  return `${what}: ${shown.join(", ")}${rest === 0 ? "" : `, and ${rest} more`}.`;
}
