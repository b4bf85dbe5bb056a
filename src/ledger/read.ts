import { setTimeout as sleep } from "node:timers/promises";
import { type DecisionEntry, type LedgerRecord, parseHead, parseRecord } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs } from "./files.js";
import { listSegments, openSegment, readLines, type Segment, segmentOf } from "./segments.js";

const POLL_MS = 200;

export interface ReadOptions {
  /** First record wanted. */
  readonly from?: number;
  /** First record not wanted any more. */
  readonly to?: number;
  readonly filter?: (record: LedgerRecord) => boolean;
  /** Wait for more at the end, until `signal` aborts. Records may show before they are durable. */
  readonly follow?: boolean;
  readonly pollMs?: number;
  readonly signal?: AbortSignal;
  readonly disk?: LedgerFs;
}

export interface ReadRecord {
  readonly seq: number;
  /** The record exactly as it stands in the file, without its newline. */
  readonly line: string;
  readonly record: LedgerRecord;
  readonly segment: string;
  readonly lineNumber: number;
}

/** Records in order, a chunk in memory at a time. Throws where a line is not a record: `verify` says more. */
export async function* read(dir: string, options: ReadOptions = {}): AsyncGenerator<ReadRecord> {
  const { from = 0, to = Number.POSITIVE_INFINITY, filter, follow = false, signal, disk = nodeFs } = options;
  let segment = await firstSegment(disk, dir, from);
  let place = { offset: 0, number: 1 };
  let next = from;
  for (;;) {
    const after = await segmentAfter(disk, dir, segment);
    // Read after looking for the next file: once there is one, this one does not grow any more.
    if (segment !== undefined) {
      ({ place, next } = yield* readSegment(disk, segment, place, next, to, filter, signal));
    }
    if (next >= to || signal?.aborted === true) return;
    if (after !== undefined) {
      segment = after;
      place = { offset: 0, number: 1 };
    } else if (follow) {
      await sleep(options.pollMs ?? POLL_MS, undefined, { signal }).catch(() => {});
    } else return;
  }
}

async function firstSegment(disk: LedgerFs, dir: string, from: number): Promise<Segment | undefined> {
  if ((await disk.stat(dir))?.isDirectory !== true) throw new LedgerReadError(`there is no ledger folder at ${dir}`);
  const segments = await listSegments(disk, dir);
  return segmentOf(segments, from) ?? segments[0];
}

async function segmentAfter(disk: LedgerFs, dir: string, segment: Segment | undefined): Promise<Segment | undefined> {
  const segments = await listSegments(disk, dir);
  return segment === undefined ? segments[0] : segments.find((candidate) => candidate.first > segment.first);
}

async function* readSegment(
  disk: LedgerFs,
  segment: Segment,
  start: { offset: number; number: number },
  from: number,
  to: number,
  filter: ReadOptions["filter"],
  signal: AbortSignal | undefined,
): AsyncGenerator<ReadRecord, { place: { offset: number; number: number }; next: number }> {
  const file = await openSegment(disk, segment);
  let place = start;
  let next = from;
  try {
    // A write that failed is cut off again, and others take its place: find the way again from the beginning.
    if ((await file.size()) < place.offset) place = { offset: 0, number: 1 };
    for await (const batch of readLines(file, segment.name, place)) {
      for (const line of batch.lines) {
        if (next >= to || signal?.aborted === true) return { place, next };
        const head = parseHead(line.bytes);
        const isWanted = head === undefined || head.seq >= next;
        const record = isWanted ? parseRecord(line.bytes) : undefined;
        place = { offset: line.offset + line.bytes.length + 1, number: line.number + 1 };
        if (!isWanted) continue;
        if (record === undefined) throw new LedgerReadError(`${segment.name} line ${line.number} is not a record`);
        if (record.seq >= to) return { place, next: to };
        next = record.seq + 1;
        if (filter !== undefined && !filter(record)) continue;
        const text = line.bytes.toString("utf8");
        yield { seq: record.seq, line: text, record, segment: segment.name, lineNumber: line.number };
      }
    }
  } finally {
    await file.close();
  }
  return { place, next };
}

/** The records with these numbers (in ascending order), reading only the files that hold them. */
export async function* recordsAt(disk: LedgerFs, dir: string, seqs: readonly number[]): AsyncGenerator<ReadRecord> {
  const segments = await listSegments(disk, dir);
  for (let i = 0; i < seqs.length; ) {
    const from = seqs[i] as number;
    const segment = segmentOf(segments, from);
    const wanted = new Set<number>();
    for (; i < seqs.length && segmentOf(segments, seqs[i] as number) === segment; i++) wanted.add(seqs[i] as number);
    const to = (seqs[i - 1] as number) + 1;
    for await (const found of read(dir, { from, to, disk })) if (wanted.delete(found.seq)) yield found;
    for (const seq of wanted) throw new LedgerReadError(`there is no record ${seq} in ${dir}`);
  }
}

/** A decision as it was asked for, to be decided again under another policy. */
export type RecordedIntent = Pick<
  DecisionEntry,
  | "call"
  | "app"
  | "agent"
  | "actor"
  | "method"
  | "tool"
  | "binding"
  | "args_cid"
  | "effect"
  | "rules"
  | "policy"
  | "mode"
> & {
  readonly seq: number;
  readonly ts: string;
  /** Canonical text; undefined where arguments were not kept, and the call cannot be replayed. */
  readonly args: string | undefined;
  readonly forwarded: string | undefined;
};

/** Every recorded decision, for `replay`. */
export async function* readIntents(
  dir: string,
  options: Omit<ReadOptions, "follow"> = {},
): AsyncGenerator<RecordedIntent> {
  for await (const { record } of read(dir, options)) {
    if (record.kind !== "decision") continue;
    const { seq, ts, call, app, agent, actor, method, tool, binding, args_cid, effect, rules, policy, mode } = record;
    const { args, forwarded } = record;
    const kept = { args, forwarded };
    yield { seq, ts, call, app, agent, actor, method, tool, binding, args_cid, effect, rules, policy, mode, ...kept };
  }
}
