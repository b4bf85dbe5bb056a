// What happens, as events: records of the ledgers as they are written, and changes in the store. Nothing is read while
// no browser follows.

import type { AdminEvent, DecisionRow } from "../../admin/index.js";
import { followSeveral, type LedgerRecord, type NamedLedger, readLastOfSeveral } from "../../ledger/index.js";
import type { StoreChange } from "../../storage/index.js";
import { decisionRow } from "./decisions.js";
import { type AdminEvents, type ConsoleParts, ledgersOf } from "./parts.js";

const GATHER_MS = 250;
const POLL_MS = 500;
/** Ledgers that were not there when the first browser came. */
const LEDGERS_MS = 15_000;
const MAX_ITEMS = 200;
/** Decisions whose outcome is still awaited. */
const MAX_OPEN = 1_000;

const TOPICS: Readonly<Record<string, string>> = {
  application: "application",
  key: "key",
  secret: "secret",
  pin: "pin",
};

export function startLive(parts: ConsoleParts, events: AdminEvents): () => void {
  let stop: AbortController | undefined;
  events.whenWatched(async (isWatched) => {
    stop?.abort();
    stop = isWatched ? new AbortController() : undefined;
    if (!stop) return;
    const { signal } = stop;
    const unwatch = [watchApprovals(parts, events), await watchStore(parts, events)];
    const ledgers = ledgersOf(parts);
    // Before the first stream is answered: what happens from now on is sent.
    const { next } = await readLastOfSeveral(ledgers, 0);
    const end = (): void => unwatch.forEach((each) => each());
    if (signal.aborted) return end();
    signal.addEventListener("abort", end, { once: true });
    void follow(parts, events, next, signal);
  });
  return () => stop?.abort();
}

async function follow(
  parts: ConsoleParts,
  events: AdminEvents,
  first: ReadonlyMap<NamedLedger, number>,
  signal: AbortSignal,
): Promise<void> {
  let positions = first;
  while (!signal.aborted) {
    const round = new AbortController();
    const end = (): void => round.abort();
    signal.addEventListener("abort", end, { once: true });
    const known = positions.size;
    const timer = setInterval(() => {
      if (ledgersOf(parts).length !== known) round.abort();
    }, LEDGERS_MS);
    timer.unref();
    try {
      await followRecords(events, positions, round.signal);
      if (signal.aborted) return;
      positions = (await readLastOfSeveral(ledgersOf(parts), 0)).next;
      events.send({ type: "reset" });
    } catch (error) {
      parts.telemetry.log.debug("records could not be followed", { problem: (error as Error).message });
      await new Promise((resolve) => setTimeout(resolve, 1_000).unref());
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", end);
    }
  }
}

async function followRecords(
  events: AdminEvents,
  positions: ReadonlyMap<NamedLedger, number>,
  signal: AbortSignal,
): Promise<void> {
  const open = new Map<string, { ledger: string; record: Extract<LedgerRecord, { kind: "decision" }> }>();
  const gathered = new Map<string, DecisionRow>();
  let timer: NodeJS.Timeout | undefined;
  const send = (): void => {
    timer = undefined;
    const items = [...gathered.values()];
    gathered.clear();
    // More than can be looked at: what is shown is read again.
    events.send(items.length > MAX_ITEMS ? { type: "reset" } : { type: "decisions", items });
  };
  const add = (row: DecisionRow): void => {
    gathered.set(row.id, row);
    timer ??= setTimeout(send, GATHER_MS).unref();
  };
  for await (const { ledger, record } of followSeveral(positions, { signal, pollMs: POLL_MS })) {
    if (record.kind === "decision" && !record.rules.some((rule) => rule.startsWith("builtin."))) {
      if (open.size >= MAX_OPEN) open.delete(open.keys().next().value as string);
      open.set(record.call, { ledger: ledger.name, record });
      add(decisionRow(ledger.name, record));
    } else if (record.kind === "outcome") {
      const decided = open.get(record.call);
      open.delete(record.call);
      if (decided) add(decisionRow(decided.ledger, decided.record, record));
    } else if (record.kind === "policy") {
      const app = record.detail?.app;
      events.send({ type: "changed", topic: "policy", app: typeof app === "string" ? app : "", name: record.new });
    }
  }
  clearTimeout(timer);
}

function watchApprovals({ storage }: ConsoleParts, events: AdminEvents): () => void {
  const changed = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  const send = async (): Promise<void> => {
    timer = undefined;
    const ids = [...changed];
    changed.clear();
    const { pending } = await storage.challenges.figures();
    events.send({ type: "approvals", pending, changed: ids });
  };
  return storage.challenges.onChange((id) => {
    if (id !== "") changed.add(id);
    timer ??= setTimeout(() => void send().catch(() => events.send({ type: "reset" })), GATHER_MS).unref();
  });
}

function watchStore({ storage }: ConsoleParts, events: AdminEvents): Promise<() => void> {
  return storage.feed.watch({
    change: ({ topic, app, name }: StoreChange) => {
      const shown = TOPICS[topic] as (AdminEvent & { type: "changed" })["topic"] | undefined;
      if (shown) events.send({ type: "changed", topic: shown, app, name });
    },
    resync: () => events.send({ type: "reset" }),
  });
}
