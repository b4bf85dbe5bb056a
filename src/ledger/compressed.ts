// A closed segment as gzip: members of equal plain size, so that any part of it is read by decompressing one or two
// members, and an empty last member whose extra field holds where each begins. Any gzip program reads the whole.

import { join } from "node:path";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, type ReadableFile, syncFile, writeAt } from "./files.js";
import { closedPath, type Segment } from "./segments.js";

const compress = promisify(gzip);
const decompress = promisify(gunzip);

const MIN_BLOCK_BYTES = 64 * 1024;
const MAX_BLOCK_BYTES = 4 * 1024 * 1024;
/** An extra field has at most 65,535 bytes, and each block takes four of them. */
const MAX_BLOCKS = 16_000;

// RFC 1952: the header of a member with an extra field, and the end of a member without contents.
const MEMBER = Buffer.from([0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255]);
const EMPTY_END = Buffer.from([3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
const FIELD_ID = Buffer.from("PC");
/** Before the table: block size (4 bytes) and plain size (8); after it: length of the whole member (4). */
const TABLE_HEAD = 12;
const TABLE_FOOT = 4;
const TO_TABLE = MEMBER.length + 2 + FIELD_ID.length + 2;

/** The compressed form of `file`, a block at a time. Ends early when `stop` is aborted. */
export async function* compressFile(file: ReadableFile, stop?: AbortSignal): AsyncGenerator<Buffer> {
  const size = await file.size();
  let blockBytes = MIN_BLOCK_BYTES;
  while (size > blockBytes * MAX_BLOCKS && blockBytes < MAX_BLOCK_BYTES) blockBytes *= 2;
  if (size > blockBytes * MAX_BLOCKS) throw new LedgerReadError(`a segment of ${size} bytes is too large to compress`);
  const lengths: number[] = [];
  for (let at = 0; at < size; at += blockBytes) {
    if (stop?.aborted) return;
    const plain = Buffer.alloc(Math.min(blockBytes, size - at));
    if ((await file.read(plain, at)) < plain.length)
      throw new LedgerReadError("a segment became shorter while it was read");
    const block = await compress(plain);
    lengths.push(block.length);
    yield block;
  }
  yield tableOf(blockBytes, size, lengths);
}

function tableOf(blockBytes: number, size: number, lengths: readonly number[]): Buffer {
  const table = Buffer.alloc(TABLE_HEAD + 4 * lengths.length + TABLE_FOOT);
  table.writeUInt32LE(blockBytes, 0);
  table.writeBigUInt64LE(BigInt(size), 4);
  for (const [i, length] of lengths.entries()) table.writeUInt32LE(length, TABLE_HEAD + 4 * i);
  table.writeUInt32LE(TO_TABLE + table.length + EMPTY_END.length, table.length - TABLE_FOOT);
  const sizes = Buffer.alloc(4);
  sizes.writeUInt16LE(table.length + FIELD_ID.length + 2, 0);
  sizes.writeUInt16LE(table.length, 2);
  return Buffer.concat([MEMBER, sizes.subarray(0, 2), FIELD_ID, sizes.subarray(2), table, EMPTY_END]);
}

/** Reads the plain contents of a compressed segment. */
export async function openCompressed(file: ReadableFile, name: string): Promise<ReadableFile> {
  const damaged = (why: string): LedgerReadError => new LedgerReadError(`${name} is damaged: ${why}`);
  const end = Buffer.alloc(TABLE_FOOT + EMPTY_END.length);
  const size = await file.size();
  if (size < end.length || (await file.read(end, size - end.length)) < end.length) throw damaged("it has no table");
  const length = end.readUInt32LE(0);
  if (length > size || length < TO_TABLE + TABLE_HEAD + end.length) throw damaged("it has no table");
  const member = Buffer.alloc(length);
  if ((await file.read(member, size - length)) < length) throw damaged("its table is cut off");
  const table = member.subarray(TO_TABLE, length - EMPTY_END.length);
  const blockBytes = table.readUInt32LE(0);
  const plainSize = Number(table.readBigUInt64LE(4));
  const lengths: number[] = [];
  for (let at = TABLE_HEAD; at + TABLE_FOOT < table.length; at += 4) lengths.push(table.readUInt32LE(at));
  const isSound =
    blockBytes >= MIN_BLOCK_BYTES &&
    blockBytes <= MAX_BLOCK_BYTES &&
    lengths.length === Math.ceil(plainSize / blockBytes) &&
    member.equals(tableOf(blockBytes, plainSize, lengths)) &&
    lengths.reduce((sum, each) => sum + each, length) === size;
  if (!isSound) throw damaged("its table does not fit it");
  return new CompressedFile(file, { blockBytes, plainSize, lengths }, damaged);
}

interface Table {
  readonly blockBytes: number;
  readonly plainSize: number;
  readonly lengths: readonly number[];
}

class CompressedFile implements ReadableFile {
  readonly #file: ReadableFile;
  readonly #table: Table;
  readonly #offsets: number[] = [];
  readonly #damaged: (why: string) => LedgerReadError;
  /** The two blocks read last: lines lie across two, in either direction of reading. */
  #recent: { index: number; plain: Buffer }[] = [];

  constructor(file: ReadableFile, table: Table, damaged: (why: string) => LedgerReadError) {
    this.#file = file;
    this.#table = table;
    this.#damaged = damaged;
    let offset = 0;
    for (const length of table.lengths) {
      this.#offsets.push(offset);
      offset += length;
    }
  }

  async size(): Promise<number> {
    return this.#table.plainSize;
  }

  async read(bytes: Buffer, position: number): Promise<number> {
    const { blockBytes, plainSize } = this.#table;
    let filled = 0;
    while (filled < bytes.length && position + filled < plainSize) {
      const at = position + filled;
      const plain = await this.#block(Math.floor(at / blockBytes));
      filled += plain.copy(bytes, filled, at % blockBytes);
    }
    return filled;
  }

  async #block(index: number): Promise<Buffer> {
    const known = this.#recent.find((block) => block.index === index);
    if (known !== undefined) return known.plain;
    const { blockBytes, plainSize, lengths } = this.#table;
    const packed = Buffer.alloc(lengths[index] as number);
    const count = await this.#file.read(packed, this.#offsets[index] as number);
    if (count < packed.length) throw this.#damaged(`block ${index} is cut off`);
    const expected = Math.min(blockBytes, plainSize - index * blockBytes);
    const plain = await decompress(packed, { maxOutputLength: expected }).catch((error: Error) => {
      throw this.#damaged(`block ${index}: ${error.message}`);
    });
    if (plain.length !== expected) throw this.#damaged(`block ${index} has ${plain.length} of ${expected} bytes`);
    this.#recent = [...this.#recent.slice(-1), { index, plain }];
    return plain;
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

const COMPARE_BYTES = 64 * 1024;
const MODE = 0o600;
/** What a process that was killed left behind; the number is its process id. */
const UNFINISHED = /^seq-\d{16}\.ndjson\.gz\.\d+$/;

/** Only for the process that writes the ledger, and before it compresses. */
export async function removeUnfinished(disk: LedgerFs, dir: string): Promise<void> {
  for (const name of await disk.list(dir)) if (UNFINISHED.test(name)) await disk.remove(join(dir, name));
}

/**
 * Puts the compressed form in the place of a closed segment. INVARIANT: the plain file is removed only after the
 * compressed one was read back and is durable under its name; while both exist readers use the plain one.
 */
export async function compressSegment(disk: LedgerFs, segment: Segment, stop: AbortSignal): Promise<void> {
  const { dir, path } = segment;
  const plain = await disk.openRead(path);
  const next = `${closedPath(segment)}.${process.pid}`;
  try {
    const file = await disk.openWrite(next, MODE);
    try {
      await file.truncate(0);
      let offset = 0;
      for await (const block of compressFile(plain, stop)) {
        await writeAt(file, block, offset);
        offset += block.length;
      }
      if (stop.aborted) return await disk.remove(next);
      await syncFile(file);
      if (!(await haveSameContents(plain, await openCompressed(file, segment.name), stop))) {
        return await disk.remove(next);
      }
    } finally {
      await file.close();
    }
  } finally {
    await plain.close();
  }
  await disk.rename(next, closedPath(segment));
  await disk.syncDir(dir);
  await disk.remove(path);
  await disk.syncDir(dir);
}

/** False also when `stop` was aborted before all was compared. */
async function haveSameContents(a: ReadableFile, b: ReadableFile, stop: AbortSignal): Promise<boolean> {
  const size = await a.size();
  if ((await b.size()) !== size) return false;
  const [left, right] = [Buffer.alloc(COMPARE_BYTES), Buffer.alloc(COMPARE_BYTES)];
  for (let at = 0; at < size; at += left.length) {
    if (stop.aborted) return false;
    const count = await a.read(left, at);
    if ((await b.read(right, at)) !== count) return false;
    if (!left.subarray(0, count).equals(right.subarray(0, count))) return false;
  }
  return true;
}
