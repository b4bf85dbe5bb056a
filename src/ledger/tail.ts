// The last records, read from the end: what it costs depends on how many are wanted, not on how long the log is.

import { type LedgerRecord, parseRecord } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, type ReadableFile } from "./files.js";
import { listSegments, MAX_LINE_BYTES, openSegment } from "./segments.js";

const CHUNK_BYTES = 64 * 1024;
/** A filter that fits almost nothing must not lead through the whole log. */
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024;

export interface TailOptions {
  readonly filter?: (record: LedgerRecord) => boolean;
  /** How far to look back; 64 MiB unless said. */
  readonly maxBytes?: number;
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
  const { filter, disk = nodeFs } = options;
  if ((await disk.stat(dir))?.isDirectory !== true) throw new LedgerReadError(`there is no ledger folder at ${dir}`);
  const found: LedgerRecord[] = [];
  let next: number | undefined;
  let left = options.maxBytes ?? DEFAULT_MAX_BYTES;
  for (const segment of (await listSegments(disk, dir)).reverse()) {
    const file = await openSegment(disk, segment);
    try {
      for await (const { bytes, offset } of linesBackwards(file, segment.name)) {
        if (found.length >= count && next !== undefined) return { records: found.reverse(), next, complete: true };
        if (left <= 0) return { records: found.reverse(), next: next ?? 0, complete: false };
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
