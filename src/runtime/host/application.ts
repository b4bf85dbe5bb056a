// The host as an application: three tools as one server in this process, whose policy.yaml is one check.

import { type CheckFile, deny, type LoadedCheck, PERMIT, PolicyInvalid, type CheckResult } from "../../policy/index.js";
import type { InProcessApplication } from "../../gateway/index.js";
import {
  type AuditSummary,
  deniedSummary,
  type Denial,
  type DenialCode,
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  type HostToolDefinition,
  hostTools,
  type HostOutcome,
  type Policy,
  policyFor,
  type ToolName,
} from "../../host/index.js";
import { ERRORS, type ErrorType, Fault, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { type CallContext, defineTool, ServerBuilder, text } from "../../mcp/server/index.js";
import { VERSION } from "../version.js";
import type { CliError } from "../../lib/exit.js";
import { checkHostPolicy, requireClient } from "./config/read.js";
import { requireClosed } from "./config/ownership.js";
import type { HostFiles } from "./config/files.js";
import { decideHostCall } from "./decide.js";
import { describe } from "./describe.js";
import { HOST_APP, HOST_TOOLS } from "./starter-policy.js";

export interface HostApplicationOptions {
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

export interface HostApplication {
  readonly inProcess: InProcessApplication & { readonly app: string };
  readonly checkFile: CheckFile;
}

/** Longer than the longest time a command may be given: the host's own clock is the one that counts. */
const TOOL_TIMEOUT_MS = 25 * 60 * 60_000;

const TYPES: Readonly<Record<DenialCode, ErrorType>> = {
  POLICY_DENY: "PolicyDeny",
  INVALID_ARGS: "ValidationError",
  TIMEOUT: "ToolTimeout",
  IO_ERROR: "IoError",
  INTERNAL: "InternalError",
};

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
      check: ({ target, arguments: args }) => verdictOf(own, target.name, args),
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
        const { code } = ERRORS[decision.verdict.type ?? "PolicyDeny"];
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
      if (!outcome.ok) throw faultOf(outcome.denial, name, outcome.partial);
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
    default: {
      let seen = 0;
      const onOutput = (stream: string, chunk: Buffer): void => {
        seen += chunk.length;
        context.progress(seen, undefined, `${stream}: ${seen} bytes`);
      };
      return executeCmdRun(policy, args, { signal, reqId, onOutput });
    }
  }
}

function verdictOf(policy: Policy, name: string, args: JsonObject): CheckResult {
  const decision = decideHostCall(policy, name, args);
  if (decision === undefined) return deny("PolicyDeny", "host", `the host has no tool \`${name}\``);
  if (decision.effect === "permit") return { ...PERMIT, rules: [{ id: decision.rule }] };
  const { denial } = decision;
  return deny(TYPES[denial.code], denial.rule, denial.reason, {
    field: denial.field,
    suggestions: denial.suggestions,
  });
}

/** What a command had written before its time ran out travels with the failure. */
function faultOf(denial: Denial, tool: string, partial: unknown): Fault {
  const timedOut = denial.code === "TIMEOUT" ? { timedOut: true, tool_name: tool, timeout_ms: denial.timeoutMs } : {};
  return new Fault(TYPES[denial.code], denial.reason, {
    rule: denial.rule,
    field: denial.field,
    suggestions: denial.suggestions,
    extra: { ...timedOut, ...(partial === undefined ? {} : { partial }) },
  });
}
