import { hash } from "node:crypto";
import { BATCH_BYTES } from "./batch.js";
import { closesCall, type LedgerRecord, opensCall, parseRecord } from "./entry.js";
import { LedgerRefused } from "./errors.js";
import type { LedgerFs } from "./files.js";
import type { Checkpoint } from "./note.js";
import { openSegment, readLines, type Segment, type SegmentLine } from "./segments.js";
import { leafHash, type Tree } from "./tree.js";

export const RESTORE = "restore the directory from a copy; `portcullis audit verify` names what is wrong";

export interface ScanOptions {
  readonly disk: LedgerFs;
  readonly dir: string;
  readonly origin: string;
  readonly maxLineBytes: number;
  readonly maxOpenCalls: number;
}

/** A checkpoint whose signature was checked, and where it was found. */
export type Signed = Checkpoint & { readonly from: string };

export interface Torn {
  readonly bytes: number;
  readonly sha256: string;
}

/** What is known before the first line that is scanned. */
export interface ScanStart {
  readonly tree: Tree;
  readonly prev: string;
  readonly open: Map<string, number>;
}

export function missingSegment(first: number, last: number, before: string): LedgerRefused {
  const which = first === last ? `record ${first} is` : `records ${first} to ${last} are`;
  return new LedgerRefused(`${which} missing before ${before}`, RESTORE);
}

export function changed(dir: string, checkpoint: Signed): LedgerRefused {
  return new LedgerRefused(
    `ledger ${dir} does not match checkpoint ${checkpoint.from}: some of its first ${checkpoint.size} records are not those that were signed`,
    RESTORE,
  );
}

/** Reads segments in order, checks every line and builds up the tree and the open calls. */
export class Scan {
  readonly #options: ScanOptions;
  readonly #tree: Tree;
  readonly #open: Map<string, number>;
  readonly #signed: Signed[];
  prev: string;

  constructor(options: ScanOptions, start: ScanStart, signed: readonly Signed[]) {
    this.#options = options;
    this.#tree = start.tree;
    this.#open = start.open;
    this.prev = start.prev;
    this.#signed = signed.filter((checkpoint) => checkpoint.size > start.tree.size);
  }

  async segment(segment: Segment, isLast: boolean): Promise<{ offset: number; torn: Torn | null }> {
    if (segment.first !== this.#tree.size) throw missingSegment(this.#tree.size, segment.first - 1, segment.name);
    const file = await openSegment(this.#options.disk, segment);
    const tail = new TornTail(segment, this.#options.maxLineBytes);
    let offset = 0;
    try {
      for await (const batch of readLines(file, segment.name)) {
        for (const line of batch.lines) {
          const record = parseRecord(line.bytes);
          if (record === undefined || tail.hasBegun) tail.take(line, record, this.#tree.size);
          else {
            this.#record(segment, line, record);
            offset = line.offset + line.bytes.length + 1;
          }
        }
        if (batch.torn !== undefined) tail.takeRest(batch.torn);
      }
    } finally {
      await file.close();
    }
    if (tail.hasBegun && !isLast) throw tail.damaged("another file follows it");
    return { offset, torn: tail.result() };
  }

  #record(segment: Segment, line: SegmentLine, record: LedgerRecord): void {
    const seq = this.#tree.size;
    const where = `${segment.name} line ${line.number}`;
    if (record.seq !== seq) {
      throw new LedgerRefused(`${where} holds record ${record.seq} where record ${seq} belongs`, RESTORE);
    }
    if (record.prev !== this.prev) {
      throw new LedgerRefused(`${where}: record ${seq} does not continue record ${seq - 1}; one was changed`, RESTORE);
    }
    if (seq === 0 && record.kind === "start" && record.origin !== this.#options.origin) {
      throw new LedgerRefused(
        `ledger ${this.#options.dir} is "${record.origin}", it was opened as "${this.#options.origin}"`,
        "open it under its own origin, or use another directory",
      );
    }
    this.prev = leafHash(line.bytes);
    this.#tree.push(this.prev);
    this.#follow(record);
    while (this.#signed[0]?.size === this.#tree.size) {
      const checkpoint = this.#signed.shift() as Signed;
      if (checkpoint.root !== this.#tree.root()) throw changed(this.#options.dir, checkpoint);
    }
  }

  #follow(record: LedgerRecord): void {
    const opened = opensCall(record);
    const closed = closesCall(record);
    if (opened !== undefined) this.#open.set(opened, record.seq);
    if (closed !== undefined) this.#open.delete(closed);
    if (this.#open.size > this.#options.maxOpenCalls) {
      throw new LedgerRefused(
        `more than ${this.#options.maxOpenCalls} calls have no outcome at record ${record.seq}`,
        "raise maxOpenCalls",
      );
    }
  }

  finish(): void {
    const ahead = this.#signed.at(-1);
    if (ahead === undefined) return;
    const size = this.#tree.size;
    const which = ahead.size - 1 === size ? `record ${size} is` : `records ${size} to ${ahead.size - 1} are`;
    throw new LedgerRefused(
      `ledger ${this.#options.dir} has ${size} sound records, but checkpoint ${ahead.from} was signed over ${ahead.size}: ${which} missing or damaged`,
      RESTORE,
    );
  }
}

/**
 * What a crash left half-written at the end of the last file. It can only be removed when it really looks like that:
 * nothing in it is a record, and it is no longer than one write. Anything else is damage, and a start would hide it.
 */
class TornTail {
  readonly #segment: Segment;
  readonly #limit: number;
  #first: SegmentLine | undefined;
  #seq = 0;
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(segment: Segment, maxLineBytes: number) {
    this.#segment = segment;
    this.#limit = BATCH_BYTES + 4 * maxLineBytes;
  }

  get hasBegun(): boolean {
    return this.#bytes > 0;
  }

  take(line: SegmentLine, record: LedgerRecord | undefined, seq: number): void {
    this.#first ??= line;
    this.#seq = seq;
    if (record !== undefined) throw this.damaged(`record ${record.seq} follows it`);
    this.#add(Buffer.concat([line.bytes, Buffer.from("\n")]));
  }

  takeRest(rest: Buffer): void {
    this.#add(Buffer.from(rest));
  }

  #add(part: Buffer): void {
    this.#parts.push(part);
    this.#bytes += part.length;
    if (this.#bytes > this.#limit) throw this.damaged(`${this.#bytes} bytes and more are no records`);
  }

  damaged(why: string): LedgerRefused {
    const line = this.#first === undefined ? "its last line" : `line ${this.#first.number}`;
    return new LedgerRefused(
      `${this.#segment.name} ${line} is not a record${this.#first === undefined ? "" : ` (record ${this.#seq} belongs there)`}, and no torn write either: ${why}`,
      RESTORE,
    );
  }

  result(): Torn | null {
    if (this.#bytes === 0) return null;
    return { bytes: this.#bytes, sha256: hash("sha256", Buffer.concat(this.#parts), "hex") };
  }
}
