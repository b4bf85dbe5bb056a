// Several ledgers as one account: gateways, workers, hosts and replicas write one each, and a reader wants them by time.

import type { LedgerRecord } from "./entry.js";
import { type ReadOptions, read, readLast, type TailOptions } from "./read.js";

export interface NamedLedger {
  readonly name: string;
  readonly path: string;
}

export interface RecordOfLedger {
  readonly ledger: NamedLedger;
  readonly record: LedgerRecord;
}

export interface TailOfSeveral {
  /** Oldest first. */
  readonly records: readonly RecordOfLedger[];
  /** The record of each ledger that comes after the last there is. */
  readonly next: ReadonlyMap<NamedLedger, number>;
  readonly complete: boolean;
}

/** The last `count` records that fit, of all ledgers together. */
export async function readLastOfSeveral(
  ledgers: readonly NamedLedger[],
  count: number,
  options: TailOptions = {},
): Promise<TailOfSeveral> {
  const next = new Map<NamedLedger, number>();
  const found: RecordOfLedger[] = [];
  let isComplete = true;
  for (const ledger of ledgers) {
    const tail = await readLast(ledger.path, count, options);
    next.set(ledger, tail.next);
    isComplete &&= tail.complete;
    for (const record of tail.records) found.push({ ledger, record });
  }
  // The sort is stable: records of one ledger keep their order.
  found.sort((a, b) => compareTimes(a.record, b.record));
  return { records: count === 0 ? [] : found.slice(-count), next, complete: isComplete };
}

/** All records of all ledgers, merged by time; one record of each ledger is in memory. */
export async function* readSeveral(
  ledgers: readonly NamedLedger[],
  options: Omit<ReadOptions, "follow" | "from" | "to"> = {},
): AsyncGenerator<RecordOfLedger> {
  const heads: { ledger: NamedLedger; rest: AsyncGenerator<{ record: LedgerRecord }>; record: LedgerRecord }[] = [];
  try {
    for (const ledger of ledgers) {
      const rest = read(ledger.path, options);
      const first = await rest.next();
      if (!first.done) heads.push({ ledger, rest, record: first.value.record });
    }
    while (heads.length > 0) {
      const head = heads.reduce((least, each) => (compareTimes(each.record, least.record) < 0 ? each : least));
      yield { ledger: head.ledger, record: head.record };
      const following = await head.rest.next();
      if (following.done) heads.splice(heads.indexOf(head), 1);
      else head.record = following.value.record;
    }
  } finally {
    for (const { rest } of heads) await rest.return(undefined);
  }
}

/** Records of all ledgers as they are written, until `signal` aborts. */
export async function* followSeveral(
  from: ReadonlyMap<NamedLedger, number>,
  options: Pick<ReadOptions, "filter" | "pollMs"> & { readonly signal: AbortSignal },
): AsyncGenerator<RecordOfLedger> {
  const pending = new Map<NamedLedger, Promise<RecordOfLedger | undefined>>();
  const sources = new Map(
    [...from].map(([ledger, first]) => [ledger, read(ledger.path, { ...options, from: first, follow: true })]),
  );
  const advance = (ledger: NamedLedger): void => {
    const following = sources.get(ledger)?.next();
    if (following)
      pending.set(
        ledger,
        following.then(({ done, value }) => (done === true ? undefined : { ledger, record: value.record })),
      );
  };
  for (const ledger of sources.keys()) advance(ledger);
  while (pending.size > 0) {
    const [ledger, found] = await Promise.race(
      [...pending].map(async ([each, promise]) => [each, await promise] as const),
    );
    pending.delete(ledger);
    if (found === undefined) continue;
    yield found;
    advance(ledger);
  }
}

function compareTimes(a: LedgerRecord, b: LedgerRecord): number {
  return a.ts < b.ts ? -1 : a.ts > b.ts ? 1 : 0;
}
