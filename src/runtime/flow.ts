// What agents may have read before this process was started: information flow has no other memory of it.

import { readLast } from "../ledger/index.js";
import { DEFAULT_FLOW_LIMITS, FlowMemory, type FlowReaders } from "../policy/index.js";

/** As many calls are looked back at; where there were more, every agent may have read something. */
const MAX_RECORDS = 20_000;
const MAX_BYTES = 16 * 1024 * 1024;
const EVERYONE: FlowReaders = { has: () => true };

/** With several workers or replicas, what an agent has read at another one is not known here. */
export function flowMemory(ledgerDirectory: string, isShared: boolean): FlowMemory {
  return new FlowMemory({ readers: async () => (isShared ? EVERYONE : await recentReaders(ledgerDirectory)) });
}

async function recentReaders(directory: string): Promise<FlowReaders> {
  const since = new Date(Date.now() - DEFAULT_FLOW_LIMITS.idleMs).toISOString();
  const { records, complete } = await readLast(directory, MAX_RECORDS, {
    filter: (record) => record.kind === "outcome" || record.kind === "decision",
    maxBytes: MAX_BYTES,
  });
  const isWhole = complete && (records.length < MAX_RECORDS || (records[0]?.ts ?? "") < since);
  if (!isWhole) return EVERYONE;
  const agents = new Set<string>();
  for (const record of records) {
    if (record.kind !== "decision" || record.ts < since || record.effect !== "permit") continue;
    agents.add(`${record.app}/${record.agent}`);
  }
  return { has: (app, agent) => agents.has(`${app}/${agent}`) };
}
