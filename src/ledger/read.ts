import { setTimeout as sleep } from "node:timers/promises";
import { type LastCheckpoint, lastCheckpoint } from "./checkpoints.js";
import { type DecisionEntry, type LedgerRecord, parseHead, parseRecord } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, type ReadableFile } from "./files.js";
import { listSegments, MAX_LINE_BYTES, openSegment, readLines, type Segment, segmentOf } from "./segments.js";
import { readStatements, whereItWent } from "./statement.js";
import { tileSource } from "./tiles.js";
import { consistencyPath, edgeAt } from "./tree.js";

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

/** Records in order, a chunk in memory at a time. Throws where a line is not a record: `verify` reports more. */
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
  if ((await disk.stat(dir))?.isDirectory !== true) throw new LedgerReadError(`there is no ledger directory at ${dir}`);
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

const CHUNK_BYTES = 64 * 1024;
/** A filter that fits almost nothing must not lead through the whole log. */
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024;

export interface TailOptions {
  readonly filter?: (record: LedgerRecord) => boolean;
  /** How far to look back; 64 MiB unless given. */
  readonly maxBytes?: number;
  /** Only records below this number. */
  readonly before?: number | undefined;
  readonly disk?: LedgerFs;
}

export interface Tail {
  /** Oldest first. */
  readonly records: readonly LedgerRecord[];
  /** The record that comes after the last there is. */
  readonly next: number;
  /** False when the search ended at `maxBytes`, and older records might fit as well. */
  readonly complete: boolean;
}

/** The last `count` records that fit. Half a line at the very end is not a record yet. */
export async function readLast(dir: string, count: number, options: TailOptions = {}): Promise<Tail> {
  const { filter, before = Number.POSITIVE_INFINITY, disk = nodeFs } = options;
  if ((await disk.stat(dir))?.isDirectory !== true) throw new LedgerReadError(`there is no ledger directory at ${dir}`);
  const found: LedgerRecord[] = [];
  let next: number | undefined;
  let left = options.maxBytes ?? DEFAULT_MAX_BYTES;
  for (const segment of (await listSegments(disk, dir)).reverse()) {
    if (segment.first >= before) continue;
    const file = await openSegment(disk, segment);
    try {
      for await (const { bytes, offset } of linesBackwards(file, segment.name)) {
        if (found.length >= count && next !== undefined) return { records: found.reverse(), next, complete: true };
        if (left <= 0) return { records: found.reverse(), next: next ?? 0, complete: false };
        if ((parseHead(bytes)?.seq ?? -1) >= before) continue;
        left -= bytes.length + 1;
        const record = parseRecord(bytes);
        if (record === undefined) throw new LedgerReadError(`${segment.name} at byte ${offset} is not a record`);
        next ??= record.seq + 1;
        if (found.length < count && (filter === undefined || filter(record))) found.push(record);
      }
    } finally {
      await file.close();
    }
  }
  return { records: found.reverse(), next: next ?? 0, complete: true };
}

/** The whole lines of a file, the last one first. Memory is bounded by a chunk and the longest line. */
async function* linesBackwards(file: ReadableFile, where: string): AsyncGenerator<{ bytes: Buffer; offset: number }> {
  let start = await file.size();
  /** What lies between `start` and the end of the line that is being put together. */
  let rest = Buffer.alloc(0);
  let isTorn = true;
  while (start > 0) {
    const length = Math.min(CHUNK_BYTES, start);
    const chunk = Buffer.alloc(length);
    const count = await file.read(chunk, start - length);
    if (count < length) throw new LedgerReadError(`${where} became shorter while it was read; try again`);
    start -= length;
    let buffer = Buffer.concat([chunk, rest]);
    for (let at = buffer.lastIndexOf(10); at >= 0; at = buffer.lastIndexOf(10)) {
      if (!isTorn) yield { bytes: buffer.subarray(at + 1), offset: start + at + 1 };
      isTorn = false;
      buffer = buffer.subarray(0, at);
    }
    if (buffer.length > MAX_LINE_BYTES) {
      throw new LedgerReadError(
        `${where} at byte ${start} has a line longer than ${MAX_LINE_BYTES} bytes: no record is`,
      );
    }
    rest = buffer;
  }
  if (!isTorn) yield { bytes: rest, offset: 0 };
}

// An export is one file: a header line, then records exactly as they stand in the log. The header holds what the
// records alone do not hold, so that `verify` can check the file by itself: the right edge of the tree before the
// first record, and the way from the tree after the last one to a signed checkpoint.

export interface ExportHeader {
  readonly portcullis_export: 1;
  readonly origin: string;
  readonly from: number;
  readonly to: number;
  /** Base64 hashes of the right edge of the tree of the first `from` records. */
  readonly edge: readonly string[];
  /** Base64 RFC 6962 consistency proof from `to` records to those of the checkpoint. */
  readonly consistency: readonly string[];
  readonly checkpoint: string;
  readonly public_keys: readonly string[];
}

export interface LedgerExportOptions {
  /** The first record that the directory still holds unless given. */
  readonly from?: number;
  /** First record left out. By default, and at most, the size of the last checkpoint: what follows is not signed. */
  readonly to?: number;
  readonly disk?: LedgerFs;
}

/** The lines of an export, each with its newline. */
export async function* exportRecords(dir: string, options: LedgerExportOptions = {}): AsyncGenerator<string> {
  const { disk = nodeFs } = options;
  const from = options.from ?? (await listSegments(disk, dir))[0]?.first ?? 0;
  const checkpoint = await lastCheckpoint(disk, dir);
  const to = Math.min(options.to ?? checkpoint.size, checkpoint.size);
  const where = whereItWent(await readStatements(disk, dir), from);
  if (where !== undefined && (await listSegments(disk, dir))[0]?.first !== 0) {
    throw new LedgerReadError(`record ${from} is not in ${dir} any more: ${where}`);
  }
  if (!(from >= 0 && from < to)) {
    throw new LedgerReadError(`there are no signed records from ${from} to ${to - 1} in ${dir}`);
  }
  yield `${JSON.stringify(await exportHeader(disk, dir, checkpoint, from, to))}\n`;
  for await (const { line } of read(dir, { from, to, disk })) yield `${line}\n`;
}

/** What an export of the records from `from` to `to` - 1 begins with. */
export async function exportHeader(
  disk: LedgerFs,
  dir: string,
  { origin, size, note, keys }: LastCheckpoint,
  from: number,
  to: number,
): Promise<ExportHeader> {
  const source = tileSource(disk, dir);
  const encode = (hashes: Buffer[]): string[] => hashes.map((hash) => hash.toString("base64"));
  return {
    portcullis_export: 1,
    origin,
    from,
    to,
    edge: encode(await edgeAt(source, from)),
    consistency: encode(await consistencyPath(source, to, size)),
    checkpoint: note,
    public_keys: keys.map((key) => key.vkey),
  };
}
