import { BATCH_BYTES, Backlog, Batch, ownRecord, type PendingBatch, type Receipt } from "./batch.js";
import { encodeBody, type LedgerEntry } from "./entry.js";
import { LedgerUnavailable, ledgerUnavailable } from "./errors.js";
import { type LedgerFile, type LedgerFs, syncFile } from "./files.js";
import { type Segment, segmentAt } from "./segments.js";

const MODE = 0o600;
const MAX_RETRY_MS = 500;
const HEAD_ROOM = 160;
const CLOSING_TRIES = 3;
/** So many records in one batch mean that many callers wait. */
const CROWD = 16;
/** The longest time that a record without a waiting caller stays in memory. */
const UNHURRIED_MS = 20;
/** A write that takes longer than this is reported by `trouble` before its deadline refuses the records in it. */
const SLOW_WRITE_MS = 1_000;

/** Where writing begins: everything before it is durable. */
export interface JournalStart {
  readonly segment: Segment;
  readonly offset: number;
  readonly size: number;
  readonly prev: string;
}

export interface JournalOptions {
  readonly disk: LedgerFs;
  readonly dir: string;
  readonly maxSegmentBytes: number;
  readonly maxPending: number;
  readonly maxPendingBytes: number;
  readonly maxLineBytes: number;
  readonly retryMs: number;
  /** The longest a write and its sync may take before the records in it are refused. */
  readonly writeDeadlineMs: number;
  readonly keepArguments: boolean;
  /** Called for each batch once it is durable, in order. */
  readonly onDurable: (items: readonly PendingBatch[]) => void;
  /** Called when the next record begins a new segment and everything before it is durable. */
  readonly onRotate: () => void;
  /** Called with the seconds that each awaited record took to become durable. */
  readonly onAppended?: ((seconds: number) => void) | undefined;
  /** A reason not to take records now, other than the disk that holds them. */
  readonly admit: () => LedgerUnavailable | undefined;
}

interface Trouble {
  readonly error: LedgerUnavailable;
  /** Nothing will be written any more by this process. */
  readonly isFinal: boolean;
  readonly nextTryAt: number;
}

/**
 * Appends records with group commit: while one batch is being synced the next one fills, and it is written as soon as
 * that sync returns. INVARIANT: a promise resolves only after the sync that covers its line; when a write or a sync
 * fails, everything not yet durable is rejected and cut off the file again.
 */
export class Journal {
  readonly #options: JournalOptions;
  #file: LedgerFile | undefined;
  /** The file while a write or a sync is under way on it. */
  #inUse: LedgerFile | undefined;
  /** Monotonic start of the operation under way on the disk. INVARIANT: one at a time, also after a deadline. */
  #busySince: number | undefined;
  #deadline: NodeJS.Timeout | undefined;
  /** The file is being opened or cut, and must not be closed: its number may be used again. */
  #isPreparing = false;
  #idle: (() => void)[] = [];
  #segment: Segment;
  #nameIsDurable = false;
  // What is durable, and what the next line continues.
  #offset: number;
  #size: number;
  #prev: string;
  #nextSeq: number;
  #nextPrev: string;

  #filling = new Batch();
  readonly #full: Batch[] = [];
  #writing: Batch | undefined;
  #spare: Batch | undefined;
  #scheduled = false;
  #lastBatch = 0;
  /** Whether a record that is not being written yet has someone waiting for it. */
  #someoneWaits = false;
  #unhurried: NodeJS.Timeout | undefined;
  #pending = 0;
  #pendingBytes = 0;

  #trouble: Trouble | undefined;
  /** The stretch of time in which nothing could be written; it ends with a durable record that describes it. */
  #gap: { error: LedgerUnavailable; since: number; startedAt: number; rejected: number; backoffMs: number } | undefined;
  #recovering: Promise<void> | undefined;
  #waiting = 0;
  #probe: NodeJS.Timeout | undefined;
  readonly #backlog: Backlog;
  #closed = false;
  #drained: (() => void)[] = [];

  constructor(start: JournalStart, options: JournalOptions) {
    this.#options = options;
    this.#backlog = new Backlog(options.maxPending);
    this.#segment = start.segment;
    this.#offset = start.offset;
    this.#size = this.#nextSeq = start.size;
    this.#prev = this.#nextPrev = start.prev;
  }

  /** Durable records. */
  get size(): number {
    return this.#size;
  }

  get pending(): number {
    return this.#pending;
  }

  /** How long the oldest record that is not durable has waited, by the monotonic clock. */
  get lagMs(): number {
    const oldest = (this.#writing ?? this.#full[0] ?? this.#filling).items[0]?.at ?? this.#gap?.startedAt;
    return oldest === undefined ? 0 : performance.now() - oldest;
  }

  get trouble(): LedgerUnavailable | undefined {
    if (this.#gap !== undefined) return this.#gap.error;
    if (this.#isBusyLongerThan(SLOW_WRITE_MS)) return this.#stalled();
    return this.#backlog.lost > 0 ? this.#queueFull() : undefined;
  }

  #isBusyLongerThan(limitMs: number): boolean {
    return this.#busySince !== undefined && performance.now() - this.#busySince >= limitMs;
  }

  #stalled(): LedgerUnavailable {
    const waitedMs = Math.round(performance.now() - (this.#busySince ?? performance.now()));
    return new LedgerUnavailable(
      "stalled",
      `a write to the ledger at ${this.#segment.path} has not returned for ${waitedMs} ms`,
      "check the disk; recording resumes by itself when the write returns",
    );
  }

  append(entry: LedgerEntry): Promise<Receipt> {
    return this.#trouble === undefined ? this.#append(entry) : this.#appendInTrouble(entry);
  }

  #append(entry: LedgerEntry): Promise<Receipt> {
    return new Promise((resolve, reject) => {
      const refusal = this.#refusal();
      if (refusal !== undefined) return reject(refusal);
      // An entry that cannot be encoded throws here, which rejects.
      this.#enqueue(entry, this.#encode(entry), resolve, reject);
    });
  }

  /** While writing fails, an append is what tries again, at most every `retryMs`; the others fail at once. */
  async #appendInTrouble(entry: LedgerEntry): Promise<Receipt> {
    const { error, isFinal, nextTryAt } = this.#trouble as Trouble;
    if (this.#closed) throw closedError();
    const mayTry =
      this.#recovering === undefined
        ? this.#busySince === undefined && performance.now() >= nextTryAt
        : this.#waiting < this.#options.maxPending;
    if (isFinal || !mayTry) {
      if (this.#gap !== undefined) this.#gap.rejected++;
      throw error;
    }
    this.#waiting++;
    try {
      await this.#recover();
    } finally {
      this.#waiting--;
    }
    return this.append(entry);
  }

  /** Takes a record without a waiting caller. It is written with the next batch, and again after a failure. */
  appendSoon(entry: LedgerEntry): void {
    if (this.#closed) throw closedError();
    const body = this.#encode(entry);
    const { maxPending, maxPendingBytes } = this.#options;
    // Outcomes of calls that already ran may use as much memory again as decisions: they must not be lost.
    const isFull = this.#pending >= 2 * maxPending || this.#pendingBytes >= 2 * maxPendingBytes;
    if (this.#trouble !== undefined || isFull) return this.#backlog.keep(entry);
    this.#enqueue(entry, body, undefined, undefined);
  }

  #refusal(): LedgerUnavailable | undefined {
    if (this.#closed) return closedError();
    const { maxPending, maxPendingBytes, admit } = this.#options;
    const isFull = this.#pending >= maxPending || this.#pendingBytes >= maxPendingBytes || this.#backlog.lost > 0;
    return isFull ? this.#queueFull() : admit();
  }

  #queueFull(): LedgerUnavailable {
    const lost = this.#backlog.lost > 0 ? ` and ${this.#backlog.lost} records were lost` : "";
    return new LedgerUnavailable(
      "queue_full",
      `${this.#pending} records (${this.#pendingBytes} bytes) wait to be written to ${this.#options.dir}${lost}`,
      "slow the callers down, use a faster disk, or raise maxPending and maxPendingBytes",
    );
  }

  #encode(entry: LedgerEntry): string {
    const body = encodeBody(entry, this.#options.keepArguments);
    const { maxLineBytes } = this.#options;
    if (body.length * 3 > maxLineBytes && Buffer.byteLength(body) > maxLineBytes) {
      throw new LedgerUnavailable(
        "entry_too_large",
        `a ${entry.kind} record of ${Buffer.byteLength(body)} bytes is over the limit of ${maxLineBytes}`,
        "raise maxLineBytes or keep fewer arguments",
      );
    }
    return body;
  }

  #enqueue(entry: LedgerEntry, body: string, resolve: PendingBatch["resolve"], reject: PendingBatch["reject"]): void {
    const room = Batch.room(HEAD_ROOM + body.length);
    if (!this.#filling.fits(room)) {
      if (this.#filling.items.length > 0) this.#full.push(this.#filling);
      this.#filling = room > BATCH_BYTES ? new Batch(room) : this.#freshBatch();
    }
    const before = this.#filling.length;
    this.#nextPrev = this.#filling.add(entry, body, this.#nextSeq, this.#nextPrev, resolve, reject);
    this.#nextSeq++;
    this.#someoneWaits ||= resolve !== undefined;
    this.#pending++;
    this.#pendingBytes += this.#filling.length - before;
    this.#schedule();
  }

  #freshBatch(): Batch {
    const batch = this.#spare ?? new Batch();
    this.#spare = undefined;
    return batch;
  }

  // setImmediate runs once the events that are ready have been handled, so that records of one turn share a sync. A
  // sync costs the processor as much as several calls; where many records come at once, a millisecond of waiting makes
  // one sync of two or three. Without a waiting caller, the next record with one brings
  // the sync along.
  #schedule(): void {
    if (this.#scheduled || this.#writing !== undefined) return;
    if (!this.#someoneWaits) {
      this.#unhurried ??= setTimeout(this.#flush, UNHURRIED_MS);
      return;
    }
    this.#scheduled = true;
    if (this.#lastBatch >= CROWD) setTimeout(this.#flush, 1);
    else setImmediate(this.#flush);
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    clearTimeout(this.#unhurried);
    this.#unhurried = undefined;
    if (this.#writing !== undefined || this.#trouble !== undefined) return;
    const batch = this.#takeBatch();
    if (batch === undefined) return this.#tellDrained();
    this.#writing = batch;
    this.#begin();
    this.#lastBatch = batch.items.length;
    const isNewSegmentDue = this.#offset >= this.#options.maxSegmentBytes;
    if (this.#file !== undefined && this.#nameIsDurable && !isNewSegmentDue) return this.#write(this.#file, batch);
    this.#isPreparing = true;
    const prepared = this.#prepare(isNewSegmentDue).finally(() => {
      this.#isPreparing = false;
    });
    prepared.then(
      (file) => {
        if (this.#writing === batch) return this.#write(file, batch);
        this.#end();
        void this.#closeFile();
      },
      (error) => {
        this.#end();
        if (this.#writing === batch) this.#fail(error);
        else void this.#closeFile();
      },
    );
  };

  #begin(): void {
    this.#busySince = performance.now();
    this.#watch(this.#options.writeDeadlineMs);
  }

  // One timer for many writes: it looks at the write that is under way when it fires, and waits on for that one.
  #watch(ms: number): void {
    this.#deadline ??= setTimeout(() => {
      this.#deadline = undefined;
      if (this.#busySince === undefined || this.#writing === undefined) return;
      const leftMs = this.#options.writeDeadlineMs - (performance.now() - this.#busySince);
      if (leftMs > 0) this.#watch(Math.ceil(leftMs));
      else this.#fail(this.#stalled());
    }, ms).unref();
  }

  /** The disk answered, in time or late. What a late write left behind is cut off when writing resumes. */
  #end(): void {
    this.#busySince = undefined;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Resolves when nothing is under way on the disk. */
  async idle(): Promise<void> {
    if (this.#busySince !== undefined) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** A write passed its deadline and has not returned. */
  get isStalled(): boolean {
    return this.#busySince !== undefined && this.#writing === undefined;
  }

  #takeBatch(): Batch | undefined {
    const full = this.#full.shift();
    if (full !== undefined) return full;
    if (this.#filling.items.length === 0) return undefined;
    const batch = this.#filling;
    this.#filling = this.#freshBatch();
    this.#someoneWaits = false;
    return batch;
  }

  #write(file: LedgerFile, batch: Batch): void {
    const done = (error: Error | null, next: () => void): void => {
      this.#inUse = undefined;
      if (this.#writing !== batch) {
        this.#end();
        // Halted meanwhile. A file is closed only when nothing is under way on it: its number may be used again.
        void file.close().catch(() => {});
      } else if (error !== null) {
        this.#end();
        this.#fail(error);
      } else next();
    };
    this.#inUse = file;
    file.write(batch.bytes, batch.length, this.#offset, (writeError) =>
      done(writeError, () => {
        this.#inUse = file;
        file.sync((syncError) => done(syncError, () => this.#check(file, () => this.#commit(batch), done)));
      }),
    );
  }

  /** A record counts only when it can be read back: a file that was removed or moved is not the ledger. */
  #check(file: LedgerFile, next: () => void, done: (error: Error | null, next: () => void) => void): void {
    const { path } = this.#segment;
    this.#inUse = file;
    file.isAt(path, (error, isThere) => done(error ?? (isThere ? null : removedError(path)), next));
  }

  #commit(batch: Batch): void {
    this.#end();
    const { items, length } = batch;
    const last = items[items.length - 1] as PendingBatch;
    this.#size = last.seq + 1;
    this.#prev = last.leaf;
    this.#offset += length;
    this.#pending -= items.length;
    this.#pendingBytes -= length;
    this.#writing = undefined;
    // Every caller is answered before the tree is brought up to date; the next write starts right after this turn.
    for (const item of items) item.resolve?.({ seq: item.seq });
    const { onAppended } = this.#options;
    if (onAppended) {
      const now = performance.now();
      for (const { resolve, at } of items) if (resolve) onAppended((now - at) / 1_000);
    }
    this.#options.onDurable(items);
    batch.clear();
    if (batch.isReusable) this.#spare = batch;
    if (this.#backlog.length > 0 && this.#pending < this.#options.maxPending / 2) this.#writeBacklog();
    this.#schedule();
  }

  /** Opens the file to write to: the current segment, or the next one when it is due. */
  async #prepare(isNewSegmentDue: boolean): Promise<LedgerFile> {
    const { disk, dir, onRotate } = this.#options;
    if (isNewSegmentDue) {
      await this.#closeFile();
      this.#segment = segmentAt(dir, this.#size);
      this.#offset = 0;
      this.#nameIsDurable = false;
      onRotate();
    }
    if (this.#file === undefined && this.#offset > 0 && (await disk.stat(this.#segment.path)) === undefined) {
      throw removedError(this.#segment.path);
    }
    this.#file ??= await disk.openJournal(this.#segment.path, MODE);
    const bytes = await this.#file.size();
    if (bytes < this.#offset) {
      throw new LedgerUnavailable(
        "io_error",
        `${this.#segment.path} has ${bytes} bytes, but ${this.#offset} were written and synced`,
        "the file was cut from outside: stop, and run `portcullis audit verify`",
      );
    }
    if (bytes > this.#offset) {
      // Left by a failed write whose success was never reported.
      await this.#file.truncate(this.#offset);
      await syncFile(this.#file);
    }
    if (!this.#nameIsDurable) {
      await disk.syncDir(dir);
      this.#nameIsDurable = true;
    }
    return this.#file;
  }

  async #closeFile(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    if (file !== this.#inUse) await file?.close().catch(() => {});
  }

  #fail(cause: unknown, isFinal = false): void {
    const error = ledgerUnavailable(cause, this.#segment.path);
    const { retryMs } = this.#options;
    this.#trouble = { error, isFinal, nextTryAt: performance.now() + retryMs };
    this.#gap ??= { error, since: Date.now(), startedAt: performance.now(), rejected: 0, backoffMs: retryMs / 2 };
    this.#gap.error = error;
    this.#gap.backoffMs = Math.min(MAX_RETRY_MS, this.#gap.backoffMs * 2);
    // The file is let go, so that the disk can be repaired or mounted anew meanwhile.
    if (!this.#isPreparing) void this.#closeFile();
    const batches = [this.#writing, ...this.#full, this.#filling];
    this.#writing = undefined;
    this.#full.length = 0;
    this.#filling = new Batch();
    this.#someoneWaits = false;
    this.#pending = this.#pendingBytes = 0;
    this.#nextSeq = this.#size;
    this.#nextPrev = this.#prev;
    for (const item of batches.flatMap((batch) => batch?.items ?? [])) {
      if (item.soon !== undefined) this.#backlog.keep(item.soon);
      else if (item.reject !== undefined) {
        this.#gap.rejected++;
        item.reject(error);
      }
    }
    this.#tellDrained();
    clearTimeout(this.#probe);
    if (!isFinal && !this.#closed) this.#probeLater(this.#gap.backoffMs);
  }

  /** Where no call comes any more, because this process is not ready, the probe finds out that the disk recovered. */
  #probeLater(afterMs: number): void {
    clearTimeout(this.#probe);
    this.#probe = setTimeout(() => void this.#recover().catch(() => {}), afterMs);
    this.#probe.unref();
  }

  /** Ends writing for good, for instance because another process owns the directory now. */
  halt(error: LedgerUnavailable): void {
    this.#fail(error, true);
  }

  /** One attempt to write again. It begins with a record of the gap, which also shows whether the disk is well. */
  #recover(): Promise<void> {
    this.#recovering ??= this.#tryRecover().finally(() => {
      this.#recovering = undefined;
    });
    return this.#recovering;
  }

  async #tryRecover(): Promise<void> {
    const trouble = this.#trouble;
    const gap = this.#gap;
    if (trouble === undefined || gap === undefined) return;
    if (trouble.isFinal) throw trouble.error;
    if (this.#busySince !== undefined) {
      // A write that returns late would land over what is written now.
      if (!this.#closed) this.#probeLater(gap.backoffMs);
      throw trouble.error;
    }
    this.#trouble = undefined;
    const detail = { error: trouble.error.message, since: new Date(gap.since).toISOString(), rejected: gap.rejected };
    const entry = ownRecord("ledger.recovered", detail);
    // When this fails, `#fail` puts the trouble back.
    await new Promise<Receipt>((resolve, reject) => this.#enqueue(entry, this.#encode(entry), resolve, reject));
    this.#gap = undefined;
    clearTimeout(this.#probe);
    this.#writeBacklog();
  }

  #writeBacklog(): void {
    for (const entry of this.#backlog.take()) this.#enqueue(entry, this.#encode(entry), undefined, undefined);
  }

  #tellDrained(): void {
    for (const resolve of this.#drained.splice(0)) resolve();
  }

  /** Writes what waits and closes the file. Throws when records had to be left behind. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#probe);
    // What fails while closing gets one more try: a disk that hiccups now may be well a moment later.
    this.#someoneWaits = true;
    this.#schedule();
    for (let tries = 0; tries < CLOSING_TRIES; tries++) {
      if (this.#trouble !== undefined) await this.#recover().catch(() => {});
      while (this.#trouble === undefined && this.#pending > 0) {
        await new Promise<void>((resolve) => this.#drained.push(resolve));
      }
      if (this.#trouble === undefined && this.#backlog.length === 0) break;
    }
    if (!this.#isPreparing) await this.#closeFile();
    const left = this.#backlog.length;
    if (left > 0) {
      const error = this.#trouble?.error ?? this.#queueFull();
      throw new LedgerUnavailable(
        error.reason,
        `${left} outcome records could not be written before closing: ${error.message}`,
        "their calls are recorded as unknown at the next start",
        error,
      );
    }
  }
}

function removedError(path: string): LedgerUnavailable {
  return new LedgerUnavailable(
    "io_error",
    `${path} is not there any more: it was removed or moved while it was being written`,
    "put it back where it was, and calls continue; if it is lost, restart with an empty directory",
  );
}

function closedError(): LedgerUnavailable {
  return new LedgerUnavailable("closed", "the ledger is closed", "open it again before recording");
}
