import { randomFillSync } from "node:crypto";
import { closesCall, encodeHead, type LedgerEntry, opensCall } from "./entry.js";
import type { LedgerUnavailable } from "./errors.js";
import { leafHashInPlace } from "./tree.js";

/** A record the ledger writes about itself. */
export function ownRecord(action: string, detail: Record<string, unknown>): LedgerEntry {
  return { kind: "admin", actor: "portcullis", action, detail };
}

/** Records without a waiting caller that cannot be written now. Records beyond the limit are counted in one. */
export class Backlog {
  readonly #max: number;
  #entries: LedgerEntry[] = [];
  #lost = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** How many are kept or lost. */
  get length(): number {
    return this.#entries.length + this.#lost;
  }

  get lost(): number {
    return this.#lost;
  }

  keep(entry: LedgerEntry): void {
    if (this.#entries.length < this.#max) this.#entries.push({ ...entry, ts: entry.ts ?? Date.now() });
    else this.#lost++;
  }

  /** Hands over everything kept, to be written. */
  take(): LedgerEntry[] {
    const entries = this.#entries;
    const why = "more records waited than maxPending allows";
    if (this.#lost > 0) entries.push(ownRecord("ledger.lost", { count: this.#lost, why }));
    this.#entries = [];
    this.#lost = 0;
    return entries;
  }
}

/** What one write holds at most, unless a single line is longer. */
export const BATCH_BYTES = 256 * 1024;

export interface Receipt {
  /** Position of the record in the ledger, and of its leaf in the tree. */
  readonly seq: number;
}

/** One record on its way to the disk. */
export interface PendingBatch {
  readonly seq: number;
  readonly leaf: string;
  readonly opens: string | undefined;
  readonly closes: string | undefined;
  /** Set for records without a waiting caller: they are written again when a write fails. */
  readonly soon: LedgerEntry | undefined;
  readonly resolve: ((receipt: Receipt) => void) | undefined;
  readonly reject: ((error: LedgerUnavailable) => void) | undefined;
  /** When it was taken, by the monotonic clock. */
  readonly at: number;
}

// A nonce is 22 characters (132 random bits) cut from a long random text. It keeps a published leaf hash from being
// matched with guessed arguments.
const NONCE_CHARS = 22;
const pool = Buffer.alloc(NONCE_CHARS * 384);
let poolText = "";
let poolAt = 0;

function nextNonce(): string {
  if (poolAt + NONCE_CHARS > poolText.length) {
    poolText = randomFillSync(pool).toString("base64url");
    poolAt = 0;
  }
  poolAt += NONCE_CHARS;
  return poolText.slice(poolAt - NONCE_CHARS, poolAt);
}

/** Lines that go to disk in one write and one sync. */
export class Batch {
  readonly items: PendingBatch[] = [];
  // The first byte is never written: leaf hashing borrows the byte before a line.
  readonly #buffer: Buffer;
  #end = 1;

  constructor(bytes = BATCH_BYTES) {
    this.#buffer = Buffer.allocUnsafe(bytes + 1);
  }

  get length(): number {
    return this.#end - 1;
  }

  get bytes(): Buffer {
    return this.#buffer.subarray(1, this.#end);
  }

  get isReusable(): boolean {
    return this.#buffer.length === BATCH_BYTES + 1;
  }

  /** Room a line of so many characters may need in UTF-8, with its newline. */
  static room(characters: number): number {
    return characters * 3 + 1;
  }

  fits(room: number): boolean {
    return this.#end + room <= this.#buffer.length;
  }

  clear(): void {
    this.items.length = 0;
    this.#end = 1;
  }

  /** Writes the record after `prev` into the batch and gives its leaf hash. The caller has checked that it fits. */
  add(
    entry: LedgerEntry,
    body: string,
    seq: number,
    prev: string,
    resolve: PendingBatch["resolve"],
    reject: PendingBatch["reject"],
  ): string {
    const start = this.#end;
    const end = start + this.#buffer.write(encodeHead(seq, prev, nextNonce()) + body, start);
    const leaf = leafHashInPlace(this.#buffer, start, end);
    this.#buffer[end] = 10;
    this.#end = end + 1;
    this.items.push({
      seq,
      leaf,
      opens: opensCall(entry),
      closes: closesCall(entry),
      soon: resolve === undefined ? entry : undefined,
      resolve,
      reject,
      at: performance.now(),
    });
    return leaf;
  }
}
