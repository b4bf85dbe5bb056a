// Past calls as the ledger has them: what rules over history begin with when a process starts or rules change.

import { type LedgerRecord, read } from "../ledger/index.js";
import { isJsonObject, type JsonObject } from "../mcp/index.js";
import { type CallEvent, type CallFacts, type HistoryWanted, recordedField } from "../policy/index.js";

type Decided = LedgerRecord & { kind: "decision" };

/** Denials before policy was asked: such calls are no events. */
const BEFORE_POLICY = new Set(["schema", "capability", "route"]);

/** The events of an application's calls in a ledger, oldest first. */
export async function* recordedCalls(dir: string, app: string, wanted: HistoryWanted): AsyncGenerator<CallEvent> {
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
    const paths = this.#wanted.fields.get(record.tool);
    const isRedeemed = this.#redeemed.delete(record.call);
    if (paths === undefined || record.app !== this.#app || BEFORE_POLICY.has(record.rules[0] ?? "")) return [];
    const runs = record.effect === "permit" || record.mode === "observe";
    const at = Date.parse(record.ts);
    const call: CallFacts = { action: record.tool, agent: record.actor, fields: fieldsOf(record, paths) };
    if (runs) this.#open.set(record.call, call);
    if (at < this.#wanted.since) return [];
    const event = { call, at, ref: record.seq, id: record.call };
    return [
      { ...event, event: "request" },
      ...(runs && isRedeemed ? [{ ...event, event: "approved" } as const] : []),
      { ...event, event: runs ? "permitted" : record.effect === "challenge" ? "asked" : "denied" },
    ];
  }

  #outcome(record: LedgerRecord & { kind: "outcome" }): CallEvent[] {
    const call = this.#open.get(record.call);
    this.#open.delete(record.call);
    const at = Date.parse(record.ts);
    if (call === undefined || at < this.#wanted.since) return [];
    const { outcome } = record;
    return [{ call, event: outcome === "ok" ? "response" : "error", outcome, at, ref: record.seq, id: record.call }];
  }
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
