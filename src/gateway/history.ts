// Past calls as the ledger has them: what rules over history begin with when a process starts or rules change.

import type { LedgerRecord } from "../ledger/index.js";
import { isJsonObject, type JsonObject } from "../mcp/index.js";
import {
  type CallEvent,
  type CallFacts,
  type HistoryWanted,
  METHODS,
  recordedField,
  SERVER_REQUESTS,
} from "../policy/index.js";

type Decided = LedgerRecord & { kind: "decision" };

/** Denials before policy was asked: such calls are no events. */
const BEFORE_POLICY = new Set(["schema", "capability", "route"]);

/** The events of an application's calls in a ledger, oldest first. */
export async function* recordedCalls(dir: string, app: string, wanted: HistoryWanted): AsyncGenerator<CallEvent> {
  // Loaded where it is used: a process without a ledger needs none of it.
  const { read } = await import("../ledger/index.js");
  const reader = new CallReader(app, wanted);
  for await (const { record } of read(dir)) yield* reader.eventsOf(record);
}

/** Turns records into events, one after the other. */
export class CallReader {
  readonly #app: string;
  readonly #wanted: HistoryWanted;
  readonly #open = new Map<string, CallFacts>();
  readonly #redeemed = new Set<string>();

  constructor(app: string, wanted: HistoryWanted) {
    this.#app = app;
    this.#wanted = wanted;
  }

  eventsOf(record: LedgerRecord): CallEvent[] {
    switch (record.kind) {
      case "challenge":
        if (record.event === "redeemed") this.#redeemed.add(record.call);
        return [];
      case "decision":
        return this.#decision(record);
      case "outcome":
        return this.#outcome(record);
      default:
        return [];
    }
  }

  #decision(record: Decided): CallEvent[] {
    const { method, app, rules, effect, mode } = record;
    const isRedeemed = this.#redeemed.delete(record.call);
    if (app !== this.#app || isNoEvent(method, rules)) return [];
    const action = Object.hasOwn(METHODS, method) ? method : record.tool;
    const runs = effect === "permit" || mode === "observe";
    const at = Date.parse(record.ts);
    const fields = fieldsOf(record, this.#wanted.fields.get(action) ?? []);
    const call: CallFacts = { action, agent: record.actor, fields };
    if (runs && (this.#isEvent(action, "response") || this.#isEvent(action, "error")))
      this.#open.set(record.call, call);
    if (at < this.#wanted.since) return [];
    const decided = runs ? "permitted" : effect === "challenge" ? "asked" : "denied";
    const events = ["request", ...(runs && isRedeemed ? (["approved"] as const) : []), decided] as const;
    return events
      .filter((event) => this.#isEvent(action, event))
      .map((event) => ({ call, at, ref: record.seq, id: record.call, event }));
  }

  #isEvent(action: string, event: CallEvent["event"]): boolean {
    return this.#wanted.isEvent(action, event);
  }

  #outcome(record: LedgerRecord & { kind: "outcome" }): CallEvent[] {
    const call = this.#open.get(record.call);
    this.#open.delete(record.call);
    const at = Date.parse(record.ts);
    if (call === undefined || at < this.#wanted.since) return [];
    const { outcome } = record;
    const event = outcome === "ok" ? "response" : "error";
    return this.#isEvent(call.action, event) ? [{ call, event, outcome, at, ref: record.seq, id: record.call }] : [];
  }
}

function isNoEvent(method: string, rules: readonly string[]): boolean {
  const [first = ""] = rules;
  return (
    BEFORE_POLICY.has(first) ||
    rules.some((rule) => rule.startsWith("builtin.")) ||
    (SERVER_REQUESTS as readonly string[]).includes(method)
  );
}

/** As recorded for rules; else from the arguments, where they are kept. */
function fieldsOf({ detail, args }: Decided, paths: readonly string[]): Record<string, string> {
  const history = detail?.history;
  const noted = isJsonObject(history) ? history : {};
  const kept = parsed(args);
  const fields: Record<string, string> = {};
  for (const path of paths) {
    const key = noted[path];
    const value = typeof key === "string" ? key : recordedField(kept, path);
    if (value !== undefined) fields[path] = value;
  }
  return fields;
}

function parsed(args: string | undefined): JsonObject {
  if (args === undefined) return {};
  try {
    const value: unknown = JSON.parse(args);
    return isJsonObject(value) ? value : {};
  } catch {
    return {};
  }
}
