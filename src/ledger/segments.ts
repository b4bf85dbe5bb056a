import { join } from "node:path";
import { openCompressed } from "./compressed.js";
import { errnoOf, LedgerReadError } from "./errors.js";
import type { LedgerFs, ReadableFile } from "./files.js";

// Records lie in files named after the first record they hold. A file is written only at its end, and only the last;
// the others may be compressed.

const NAME = /^seq-(\d{16})\.ndjson(\.gz)?$/;
const CHUNK_BYTES = 256 * 1024;
const TAIL_BYTES = 64 * 1024;
/** The longest line that is read back; appending refuses longer ones far below this. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;

export interface Segment {
  readonly name: string;
  readonly dir: string;
  /** The plain file; a compressed segment is at `closedPath` instead. */
  readonly path: string;
  /** Sequence number of the first record. */
  readonly first: number;
}

export function segmentAt(dir: string, first: number): Segment {
  const name = `seq-${String(first).padStart(16, "0")}.ndjson`;
  return { name, dir, path: join(dir, name), first };
}

/** Where a segment is once it was compressed. */
export function closedPath(segment: Segment): string {
  return `${segment.path}.gz`;
}

/** Opens a segment for reading, compressed or not. */
export async function openSegment(disk: LedgerFs, segment: Segment): Promise<ReadableFile> {
  try {
    return await disk.openRead(segment.path);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw error;
  }
  // The plain file is removed only after the compressed one is there.
  const file = await disk.openRead(closedPath(segment)).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") throw error;
    throw new LedgerReadError(`${segment.path} was removed while the ledger was read; try again`);
  });
  try {
    return await openCompressed(file, segment.name);
  } catch (error) {
    await file.close();
    throw error;
  }
}

export async function isCompressed(disk: LedgerFs, segment: Segment): Promise<boolean> {
  return (await disk.stat(segment.path)) === undefined;
}

/** Bytes of the plain contents. */
export async function segmentBytes(disk: LedgerFs, segment: Segment): Promise<number> {
  const facts = await disk.stat(segment.path);
  if (facts !== undefined) return facts.size;
  const file = await openSegment(disk, segment);
  try {
    return await file.size();
  } finally {
    await file.close();
  }
}

/** All segments in order. */
export async function listSegments(disk: LedgerFs, dir: string): Promise<Segment[]> {
  const found = new Map<number, Segment>();
  for (const name of await disk.list(dir)) {
    const match = NAME.exec(name);
    if (match !== null) found.set(Number(match[1]), segmentAt(dir, Number(match[1])));
  }
  return [...found.values()].sort((a, b) => a.first - b.first);
}

/** The segment that holds record `seq`. */
export function segmentOf(segments: readonly Segment[], seq: number): Segment | undefined {
  return segments.findLast((segment) => segment.first <= seq);
}

export interface SegmentLine {
  /** Without the newline. A view into a buffer that is used again: valid until the next batch. */
  readonly bytes: Buffer;
  /** Byte offset of the line in its file. */
  readonly offset: number;
  /** Line number in its file, from 1. */
  readonly number: number;
}

export interface LineBatch {
  readonly lines: SegmentLine[];
  /** Bytes at the very end of the file that no newline ends; only in the last batch. */
  readonly torn: Buffer | undefined;
  readonly tornOffset: number;
}

/** Whole lines of a file, and at its end what follows the last newline. The bytes are valid until the next part. */
export interface FilePart {
  readonly lines: Buffer;
  readonly offset: number;
  readonly torn: Buffer | undefined;
}

/** Reads a file a chunk at a time, from `offset` on. Memory is bounded by the longest line. */
export async function* readParts(file: ReadableFile, where: string, offset = 0): AsyncGenerator<FilePart> {
  let buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let filled = 0;
  for (let base = offset; ; ) {
    if (filled === buffer.length) {
      if (buffer.length >= MAX_LINE_BYTES) {
        throw new LedgerReadError(
          `${where} at byte ${base} has a line of more than ${MAX_LINE_BYTES} bytes: no record is`,
        );
      }
      buffer = Buffer.concat([buffer, Buffer.allocUnsafe(buffer.length)]);
    }
    const count = await file.read(buffer.subarray(filled), base + filled);
    filled += count;
    const end = buffer.subarray(0, filled).lastIndexOf(10) + 1;
    const atEnd = count === 0;
    const torn = atEnd && end < filled ? buffer.subarray(end, filled) : undefined;
    if (end > 0 || atEnd) yield { lines: buffer.subarray(0, end), offset: base, torn };
    if (atEnd) return;
    buffer.copyWithin(0, end, filled);
    filled -= end;
    base += end;
  }
}

/** Reads a file line by line. */
export async function* readLines(
  file: ReadableFile,
  where: string,
  start: { offset: number; number: number } = { offset: 0, number: 1 },
): AsyncGenerator<LineBatch> {
  let { number } = start;
  for await (const { lines: bytes, offset, torn } of readParts(file, where, start.offset)) {
    const lines: SegmentLine[] = [];
    for (let at = 0; at < bytes.length; ) {
      const end = bytes.indexOf(10, at);
      lines.push({ bytes: bytes.subarray(at, end), offset: offset + at, number: number++ });
      at = end + 1;
    }
    yield { lines, torn, tornOffset: offset + bytes.length };
  }
}

/** The last line, or undefined when the file does not end with a whole one. */
export async function lastLine(disk: LedgerFs, segment: Segment): Promise<Buffer | undefined> {
  const file = await openSegment(disk, segment);
  try {
    const size = await file.size();
    for (let want = TAIL_BYTES; ; want *= 2) {
      const tail = Buffer.alloc(Math.min(want, size));
      await file.read(tail, size - tail.length);
      if (tail[tail.length - 1] !== 10) return undefined;
      const start = tail.lastIndexOf(10, tail.length - 2) + 1;
      if (start > 0 || tail.length === size) return tail.subarray(start, tail.length - 1);
    }
  } finally {
    await file.close();
  }
}
