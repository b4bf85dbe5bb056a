// Where the records of a call are in a closed segment: a sorted table of fixed width beside it, so that a proof by call
// id reads one block of each segment. Derived from the records and never evidence: what it leads to is read and checked
// like any record, and a call that it does not know is looked for in the records themselves.

import { hash } from "node:crypto";
import { dirname, join } from "node:path";
import { parseRecord } from "./entry.js";
import { errnoOf, LedgerReadError } from "./errors.js";
import { type LedgerFile, type LedgerFs, type ReadableFile, syncFile, writeAt } from "./files.js";
import type { ReadRecord } from "./read.js";
import { MAX_LINE_BYTES, openSegment, readLines, readParts, type Segment, segmentBytes } from "./segments.js";

const MAGIC = Buffer.from("PCCALLS1");
/** Magic, bytes of the segment, number of entries. */
const HEADER_BYTES = 24;
/** Eight bytes of the SHA-256 of the call id, then the line's offset in the segment. */
const ENTRY_BYTES = 16;
/** Entries of one read. Hashes are evenly spread, so the place of one is known to within far fewer than these. */
const WINDOW = 1_024;
const LINE_GUESS_BYTES = 4_096;
const MODE = 0o600;

export function callIndexPath(segment: Segment): string {
  return join(dirname(segment.path), segment.name.replace("seq-", "calls-").replace(/ndjson$/, "index"));
}

/** True when a segment has an index, and it is of the segment as it is. */
export async function isIndexed(disk: LedgerFs, segment: Segment): Promise<boolean> {
  const file = await openIndex(disk, segment);
  if (file === undefined) return false;
  try {
    return (await countIn(disk, segment, file)) !== undefined;
  } finally {
    await file.close();
  }
}

/** Writes the index of a segment that no longer grows. */
export async function indexCalls(disk: LedgerFs, segment: Segment, stop?: AbortSignal): Promise<void> {
  const entries: Buffer[] = [];
  const file = await openSegment(disk, segment);
  const size = await file.size();
  try {
    for await (const { lines } of readLines(file, segment.name)) {
      if (stop?.aborted) return;
      for (const { bytes, offset } of lines) {
        const record = parseRecord(bytes);
        if (record === undefined || !("call" in record) || typeof record.call !== "string") continue;
        const entry = Buffer.alloc(ENTRY_BYTES);
        entry.writeBigUInt64BE(keyOf(record.call), 0);
        entry.writeBigUInt64BE(BigInt(offset), 8);
        entries.push(entry);
      }
    }
  } finally {
    await file.close();
  }
  entries.sort(Buffer.compare);
  await writeIndex(disk, callIndexPath(segment), Buffer.concat([headerOf(size, entries.length), ...entries]));
}

/** The records of a call in a closed segment, or undefined when it has no index that fits. */
export async function indexedRecords(
  disk: LedgerFs,
  segment: Segment,
  call: string,
): Promise<ReadRecord[] | undefined> {
  const offsets = await offsetsOf(disk, segment, call);
  if (offsets === undefined || offsets.length === 0) return offsets && [];
  const found: ReadRecord[] = [];
  const file = await openSegment(disk, segment);
  try {
    for (const offset of offsets) {
      const bytes = await lineAt(file, offset);
      const record = bytes && parseRecord(bytes);
      // Not a record with that hash: the index is of another file than this one.
      if (bytes === undefined || record === undefined || !("call" in record)) return undefined;
      if (keyOf(record.call) !== keyOf(call)) return undefined;
      if (record.call !== call) continue;
      found.push({ seq: record.seq, line: bytes.toString("utf8"), record, segment: segment.name, lineNumber: 0 });
    }
  } finally {
    await file.close();
  }
  return found;
}

/** The records of a call, found by reading the segment: only lines that contain the id are split off and parsed. */
export async function* scannedRecords(disk: LedgerFs, segment: Segment, call: string): AsyncGenerator<ReadRecord> {
  const file = await openSegment(disk, segment);
  try {
    for await (const bytes of linesWith(file, segment.name, Buffer.from(`"call":${JSON.stringify(call)}`))) {
      const record = parseRecord(bytes);
      if (record === undefined) throw new LedgerReadError(`${segment.name} holds a line that is not a record`);
      if (!("call" in record) || record.call !== call) continue;
      yield { seq: record.seq, line: bytes.toString("utf8"), record, segment: segment.name, lineNumber: 0 };
    }
  } finally {
    await file.close();
  }
}

/** Lines that contain `text`, found without looking at the others. */
export async function* linesWith(file: ReadableFile, where: string, text: Buffer): AsyncGenerator<Buffer> {
  for await (const { lines } of readParts(file, where)) {
    for (let at = lines.indexOf(text); at >= 0; ) {
      const end = lines.indexOf(10, at);
      yield lines.subarray(lines.lastIndexOf(10, at) + 1, end);
      at = lines.indexOf(text, end);
    }
  }
}

function keyOf(call: string): bigint {
  return hash("sha256", call, "buffer").readBigUInt64BE(0);
}

function headerOf(segmentBytes: number, count: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  MAGIC.copy(header);
  header.writeBigUInt64BE(BigInt(segmentBytes), 8);
  header.writeBigUInt64BE(BigInt(count), 16);
  return header;
}

/** Number of entries, or undefined when the index is of another state of the segment. */
async function countIn(disk: LedgerFs, segment: Segment, file: LedgerFile): Promise<number | undefined> {
  const header = Buffer.alloc(HEADER_BYTES);
  const [size] = await Promise.all([segmentBytes(disk, segment), file.read(header, 0)]);
  const count = Number(header.readBigUInt64BE(16));
  return header.equals(headerOf(size, count)) ? count : undefined;
}

async function openIndex(disk: LedgerFs, segment: Segment): Promise<LedgerFile | undefined> {
  try {
    return await disk.openRead(callIndexPath(segment));
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

async function offsetsOf(disk: LedgerFs, segment: Segment, call: string): Promise<number[] | undefined> {
  const file = await openIndex(disk, segment);
  if (file === undefined) return undefined;
  try {
    const count = await countIn(disk, segment, file);
    return count === undefined ? undefined : await search(file, count, keyOf(call));
  } finally {
    await file.close();
  }
}

/** Begins where the hash should be and halves what is left from there; mostly the first read has it. */
async function search(file: LedgerFile, count: number, key: bigint): Promise<number[] | undefined> {
  const block = Buffer.alloc(Math.min(count, WINDOW) * ENTRY_BYTES);
  const keyAt = (i: number): bigint => block.readBigUInt64BE(i * ENTRY_BYTES);
  const offsetAt = (i: number): number => Number(block.readBigUInt64BE(i * ENTRY_BYTES + 8));
  const entries = block.length / ENTRY_BYTES;
  /** Number of the block's first entry; undefined when the file ends before the block does. */
  const load = async (at: number): Promise<number | undefined> => {
    const first = Math.max(0, Math.min(at, count - entries));
    return (await file.read(block, HEADER_BYTES + first * ENTRY_BYTES)) === block.length ? first : undefined;
  };
  let low = 0;
  let high = count;
  let middle = Number((key * BigInt(count)) >> 64n);
  while (low < high) {
    const first = await load(middle - entries / 2);
    if (first === undefined) return undefined;
    if (keyAt(0) >= key && first > low) high = first + 1;
    else if (keyAt(entries - 1) < key) low = first + entries;
    else return collect(first);
    middle = Math.floor((low + high) / 2);
  }
  return [];

  /** The entries with the key from this block on; those of one call are few. */
  async function collect(first: number): Promise<number[] | undefined> {
    const found: number[] = [];
    for (let next = first; next < count; ) {
      const loaded = next === first ? first : await load(next);
      if (loaded === undefined) return undefined;
      for (let i = next - loaded; i < entries; i++) if (keyAt(i) === key) found.push(offsetAt(i));
      if (keyAt(entries - 1) !== key) break;
      next = loaded + entries;
    }
    return found;
  }
}

async function lineAt(file: ReadableFile, offset: number): Promise<Buffer | undefined> {
  for (let want = LINE_GUESS_BYTES; want <= MAX_LINE_BYTES; want *= 4) {
    const bytes = Buffer.alloc(want);
    const count = await file.read(bytes, offset);
    const end = bytes.subarray(0, count).indexOf(10);
    if (end >= 0) return bytes.subarray(0, end);
    if (count < want) return undefined;
  }
  return undefined;
}

/** In place at once or not at all; two processes that build the same one write the same bytes. */
async function writeIndex(disk: LedgerFs, path: string, bytes: Buffer): Promise<void> {
  const next = `${path}.${process.pid}`;
  const file = await disk.openWrite(next, MODE);
  try {
    await file.truncate(0);
    await writeAt(file, bytes, 0);
    await syncFile(file);
  } finally {
    await file.close();
  }
  await disk.rename(next, path);
}
