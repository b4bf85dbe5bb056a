// Past calls for commands: `policy test` gives a call a past, `policy explain` and `audit replay` take it from the ledger.

import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { PolicyRequest, PolicySet } from "../cedar/types.js";
import type { CallTarget, PolicyInput } from "../types.js";
import { type CallEvent, currentOf, fieldsOf, type HistoryWanted, historyEvent, wantedOf } from "./calls.js";
import { formulaText } from "./formula.js";
import { Monitor } from "./monitor.js";

/** A condition over past events of a call, and the records that made it true. */
export interface PastCondition {
  readonly condition: string;
  readonly holds: boolean;
  readonly records: readonly number[];
}

/** A call before the one that is decided, as a case of `policy test` has it. */
export interface PastCall {
  readonly agent: string;
  readonly tool: string;
  readonly server: string;
  readonly arguments: JsonObject;
  readonly user?: string;
  readonly session?: string;
  /** What became of it; permitted and answered unless given. */
  readonly event?: "permitted" | "approved" | "denied" | "asked" | "response" | "error";
  readonly agoMs: number;
}

type Caller = Pick<PolicyInput, "session"> & { readonly user?: string | undefined };

export class PastCalls {
  readonly wanted: HistoryWanted;
  readonly #set: Pick<PolicySet, "conditions">;
  readonly #monitor: Monitor;
  #at = 0;

  constructor(set: Pick<PolicySet, "conditions">, now?: number) {
    this.#set = set;
    this.#monitor = new Monitor(set.conditions);
    this.wanted = wantedOf(set.conditions, now);
  }

  add(event: CallEvent): void {
    this.#at = Math.max(this.#at, event.at);
    this.#monitor.observe(historyEvent(event, this.#at));
  }

  /** Adds a call with all that became of it. */
  addCall(call: PastCall, app: string, now: number): void {
    const input = inputOf({ ...call, app, action: call.tool, transport: "" }, call.server, call);
    const { event = "response" } = call;
    const runs = event !== "denied" && event !== "asked";
    const events = ["request", ...(event === "approved" ? ["approved"] : []), ...(runs ? ["permitted"] : [event])];
    if (event === "response" || event === "error") events.push(event);
    const at = now - call.agoMs;
    for (const each of events as CallEvent["event"][]) {
      if (!this.wanted.isEvent(call.tool, each)) continue;
      const outcome = each === "response" ? "ok" : each === "error" ? "tool_error" : undefined;
      const facts = { action: call.tool, agent: `${app}/${call.agent}`, fields: fieldsOf(input, this.wanted) };
      this.add({ call: facts, event: each, at, ref: 0, id: "", ...(outcome ? { outcome } : {}) });
    }
  }

  /** Enters the call that is to be decided. */
  enter(request: PolicyRequest, at: number): void {
    const input = inputOf(request, request.resource.server ?? "", request);
    const call = {
      action: request.action,
      agent: `${request.app}/${request.agent}`,
      fields: fieldsOf(input, this.wanted),
    };
    this.add({ call, event: "request", at, ref: 0, id: "" });
  }

  /** The request, decided by the calls before it: the call itself was the last to be added. */
  decided(request: PolicyRequest): PolicyRequest {
    const input = inputOf(request, request.resource.server ?? "", request);
    return { ...request, history: (condition) => this.#monitor.holds(condition, (path) => currentOf(input, path)) };
  }

  /** What each condition says of the request. */
  conditions(request: PolicyRequest): PastCondition[] {
    const input = inputOf(request, request.resource.server ?? "", request);
    return this.#set.conditions.map((condition, number) => {
      const records = new Set<number>();
      const holds = this.#monitor.holds(number, (path) => currentOf(input, path), records);
      const known = [...records].filter((record) => record > 0).sort((a, b) => a - b);
      return { condition: formulaText(condition), holds, records: known };
    });
  }
}

/** As much of a call as conditions over past events read. */
function inputOf(
  {
    app,
    agent,
    action,
    arguments: args,
    transport,
  }: Pick<PolicyRequest, "app" | "agent" | "action" | "transport"> & {
    readonly arguments: JsonObject;
  },
  server: string,
  { user, session }: Caller = {},
): PolicyInput {
  const target = { type: "Tool", name: action, action, server } as CallTarget;
  const principal = { app, agent, scope: [], via: "", ...(user === undefined ? {} : { user }) };
  return { principal, method: "tools/call", target, arguments: args, transport, session };
}

const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const RESULTS = ["permitted", "approved", "denied", "asked", "response", "error"];
const FIELDS = ["agent", "tool", "server", "arguments", "user", "session", "event", "ago"];

/** The `past` of a case; `wrong` is called with what is not as it should be. */
export function readPast(
  value: unknown,
  agent: string,
  wrong: (message: string, help?: string) => void,
): readonly PastCall[] {
  if (Array.isArray(value)) return value.flatMap((each) => readPastCall(each, agent, wrong) ?? []);
  wrong("past must be a list of calls", "write - { tool: mail.read, ago: 5m }");
  return [];
}

function readPastCall(
  value: unknown,
  agent: string,
  wrong: (message: string, help?: string) => void,
): PastCall | undefined {
  const help = "write - { tool: mail.read, ago: 5m }";
  if (!isJsonObject(value)) return void wrong("a past call must be an object", help);
  const unknown = Object.keys(value).find((name) => !FIELDS.includes(name));
  if (unknown !== undefined) return void wrong(`a past call has no ${unknown}`, `known are ${FIELDS.join(", ")}`);
  const { tool, ago, event = "response", arguments: args = {} } = value;
  const [, count, unit = ""] = /^(\d{1,9})([smhd])$/.exec(String(ago)) ?? [];
  if (typeof tool !== "string" || tool === "") return void wrong("a past call needs a tool", help);
  if (count === undefined) return void wrong("a past call needs ago", "such as 30s, 5m, 2h or 1d");
  if (!RESULTS.includes(event as string)) return void wrong("event of a past call", `must be ${RESULTS.join(", ")}`);
  if (!isJsonObject(args)) return void wrong("arguments of a past call must be an object");
  const text = (name: "user" | "session"): object => (typeof value[name] === "string" ? { [name]: value[name] } : {});
  return {
    tool,
    agent: typeof value.agent === "string" ? value.agent : agent,
    server: typeof value.server === "string" ? value.server : "",
    arguments: args,
    event: event as NonNullable<PastCall["event"]>,
    agoMs: Number(count) * (UNIT_MS[unit] as number),
    ...text("user"),
    ...text("session"),
  };
}
