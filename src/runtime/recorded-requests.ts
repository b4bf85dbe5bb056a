// Recorded decisions as requests that can be decided again, and requests that were never made.

import { CallReader } from "../gateway/index.js";
import { type LedgerRecord, readSeveral } from "../ledger/index.js";
import type { JsonObject } from "../mcp/index.js";
import {
  NO_FLOW,
  PastCalls,
  type PastCondition,
  type PolicyDecision,
  type PolicyRequest,
  type PolicySet,
  type ToolSummary,
} from "../policy/index.js";
import type { Served } from "./served.js";

export interface RecordedRequest {
  ledger: string;
  seq: number;
  request: PolicyRequest;
  effect: PolicyDecision["effect"];
  rules: readonly string[];
  argumentsId: string;
  hasArguments: boolean;
}

/** More challenges than this are not remembered until their approval. */
const MAX_CHALLENGED = 100_000;

/** An approved call is recorded as permitted, and was a challenge all the same. */
export async function* asAsked(requests: AsyncIterable<RecordedRequest>): AsyncGenerator<RecordedRequest> {
  const challenged = new Map<string, readonly string[]>();
  for await (const each of requests) {
    const { app, agent, action, resource } = each.request;
    const key = JSON.stringify([app, agent, action, resource.id, each.argumentsId]);
    if (each.effect === "challenge" && challenged.size < MAX_CHALLENGED) challenged.set(key, each.rules);
    const rules = each.effect === "permit" ? challenged.get(key) : undefined;
    yield rules ? { ...each, effect: "challenge", rules } : each;
  }
}

const TYPES: Readonly<Record<string, PolicyRequest["resource"]["type"]>> = {
  "tools/call": "Tool",
  "resources/read": "Resource",
  "resources/subscribe": "Resource",
  "prompts/get": "Prompt",
  "completion/complete": "Prompt",
  "subscriptions/listen": "Method",
};

/**
 * Decisions of the ledgers as requests that can be decided again, each by the calls before it where the policy has rules
 * over past calls. INVARIANT: a request is decided before the next is taken.
 */
export async function* recorded(
  { app, tools, ledgers }: Served,
  policy?: Pick<PolicySet, "conditions">,
): AsyncGenerator<RecordedRequest> {
  const past = policy && policy.conditions.length > 0 ? new PastCalls(policy) : undefined;
  const reader = past && new CallReader(app, past.wanted);
  for await (const { ledger, record } of readSeveral(ledgers)) {
    const events = reader?.eventsOf(record) ?? [];
    const isOurs = record.kind === "decision" && record.app === app;
    const found = isOurs ? recordedRequest(ledger.name, record, tools) : undefined;
    if (found && past && events[0]) past.add(events.shift() as (typeof events)[number]);
    if (found) yield past ? { ...found, request: past.decided(found.request) } : found;
    for (const event of events) past?.add(event);
  }
}

/** Undefined for a built-in call, which policy does not decide, and for a tool that is gone. */
export function recordedRequest(
  ledger: string,
  intent: Extract<LedgerRecord, { kind: "decision" }>,
  tools: readonly ToolSummary[],
): RecordedRequest | undefined {
  const type = TYPES[intent.method];
  if (!type || intent.rules.some((rule) => rule.startsWith("builtin.") || rule === "route" || rule === "schema"))
    return undefined;
  const tool = type === "Tool" ? tools.find((each) => each.name === intent.tool) : undefined;
  if (type === "Tool" && !tool) return undefined;
  return {
    ledger,
    seq: intent.seq,
    effect: intent.effect,
    rules: intent.rules,
    argumentsId: intent.args_cid,
    hasArguments: intent.args !== undefined,
    request: {
      app: intent.app,
      agent: intent.agent,
      scope: [],
      action: type === "Tool" ? intent.tool : intent.method,
      resource: {
        type,
        id: intent.tool,
        ...(tool ? { server: tool.server, tags: tool.tags ?? [] } : { server: serverOf(intent.binding) }),
      },
      arguments: intent.args === undefined ? {} : (JSON.parse(intent.args) as JsonObject),
      ...(intent.forwarded === undefined ? {} : { forwarded: JSON.parse(intent.forwarded) as JsonObject }),
      flow: NO_FLOW,
      transport: "http",
      now: Date.parse(intent.ts),
    },
  };
}

/** The request as if it came now, behind the calls of the ledgers, and what the conditions over them say. */
export async function afterRecorded(
  { app, ledgers }: Served,
  policy: Pick<PolicySet, "conditions">,
  request: PolicyRequest,
): Promise<{ request: PolicyRequest; past: readonly PastCondition[] }> {
  if (policy.conditions.length === 0) return { request, past: [] };
  const now = Date.now();
  const past = new PastCalls(policy, now);
  const reader = new CallReader(app, past.wanted);
  for await (const { record } of readSeveral(ledgers)) for (const event of reader.eventsOf(record)) past.add(event);
  past.enter(request, now);
  return { request: past.decided(request), past: past.conditions(request) };
}

const MAX_RECORDS = 20;

/** What a condition over past calls says, and the records that made it true. */
export function pastLine({ condition, holds, records }: PastCondition): string {
  const more = records.length > MAX_RECORDS ? " …" : "";
  const by = records.length === 0 ? "" : ` by #${records.slice(-MAX_RECORDS).join(", #")}${more}`;
  return `  past calls: ${holds ? `true${by}` : "false"}: ${condition}`;
}

/** A binding is how a server is connected, its name and a hash of its entry: `server:NAME#HASH`. */
export function serverOf(binding: string): string {
  return binding.slice(binding.indexOf(":") + 1).replace(/#[0-9a-f]+$/, "");
}
