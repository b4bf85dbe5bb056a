// The hardened host as a server: three tools, whose policy is one more voice in the gate's decision.

import { deny, PERMIT, type Verdict, type Voice } from "../gate/index.js";
import {
  type AuditSummary,
  type Decision,
  decideCmdRun,
  decideFsRead,
  decideFsWrite,
  deniedSummary,
  type Denial,
  type DenialCode,
  executeCmdRun,
  executeFsRead,
  executeFsWrite,
  type HostToolDefinition,
  hostTools,
  type Outcome,
  type Policy,
  policyFor,
  type ToolName,
} from "../host/index.js";
import { type ErrorType, Fault, type JsonObject, type JsonValue } from "../protocol/index.js";
import { type CallContext, defineTool, ServerBuilder, text } from "../tool/index.js";
import { describe } from "./host-describe.js";
import { VERSION } from "./version.js";

export interface HostServer {
  readonly server: ServerBuilder;
  readonly voice: Voice;
  /** Tells callers what is open to `agent` now. */
  readonly announce: (agent: string) => void;
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

type Decide = (policy: Policy, args: unknown) => Decision;
const DECIDE: Readonly<Record<string, Decide>> = {
  "fs.read": decideFsRead,
  "fs.write": decideFsWrite,
  "cmd.run": decideCmdRun,
};

/**
 * `policy` is asked at every step, so that a reload takes effect with the next call. Which of its profiles holds is a
 * question of who the caller is to the identity room; what a client calls itself counts for nothing.
 */
export function hostServer(policy: () => Policy, audit: (line: AuditSummary) => void): HostServer {
  const server = new ServerBuilder({ name: "portcullis-host", version: VERSION, title: "Portcullis host" });
  const offer = (definition: HostToolDefinition, agent: string): void => {
    const { name, title, inputSchema, outputSchema, annotations } = definition;
    server.removeTool(name);
    server.tool(
      defineTool({
        name,
        title,
        description: describe(definition, policyFor(policy(), agent)),
        input: inputSchema,
        output: outputSchema,
        annotations: { ...annotations },
        timeoutMs: TOOL_TIMEOUT_MS,
        // What would guard it is the policy, which has a voice of its own.
        noGuardrailRequired: true,
        handler: async (args: JsonObject, context: CallContext) => {
          const outcome = await run(name, policyFor(policy(), context.agent), args, context);
          audit(outcome.audit);
          if (!outcome.ok) throw faultOf(outcome.denial, name, outcome.partial);
          const structuredContent = outcome.result as JsonValue;
          const readable = readableText(name, args, outcome.result);
          return readable === undefined ? { structuredContent } : { content: [text(readable)], structuredContent };
        },
      }),
    );
  };
  return {
    server,
    announce: (agent) => hostTools.forEach((definition) => offer(definition, agent)),
    voice: ({ principal, target, arguments: args, trace }) =>
      voiceOf(policyFor(policy(), principal.agent), target.name, args, trace, audit),
  };
}

/** A file's text as it is: models read it better than the same text quoted in JSON, and it is not quoted twice. */
function readableText(name: string, args: JsonObject, result: unknown): string | undefined {
  return name === "fs.read" && args.encoding !== "base64" ? (result as { data: string }).data : undefined;
}

async function run(name: string, policy: Policy, args: JsonObject, context: CallContext): Promise<Outcome<unknown>> {
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

function voiceOf(
  policy: Policy,
  name: string,
  args: JsonObject,
  reqId: string | undefined,
  audit: (line: AuditSummary) => void,
): Verdict {
  const decide = DECIDE[name];
  if (!decide) return deny("PolicyDeny", "host", `the host has no tool \`${name}\``);
  const decision = decide(policy, args);
  if (decision.effect === "permit") return { ...PERMIT, rules: [{ id: decision.rule }] };
  const { denial } = decision;
  audit(deniedSummary(name as ToolName, policy, args, denial, reqId));
  return deny(TYPES[denial.code], denial.rule, denial.reason, {
    field: denial.field,
    suggestions: denial.suggestions,
  });
}

/** What a command had said before its time ran out travels with the failure. */
function faultOf(denial: Denial, tool: string, partial: unknown): Fault {
  const timedOut = denial.code === "TIMEOUT" ? { timedOut: true, tool_name: tool, timeout_ms: denial.timeoutMs } : {};
  return new Fault(TYPES[denial.code], denial.reason, {
    rule: denial.rule,
    field: denial.field,
    suggestions: denial.suggestions,
    extra: { ...timedOut, ...(partial === undefined ? {} : { partial }) },
  });
}
