import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { PendingBatch, Receipt } from "./batch.js";
import { indexCalls, isIndexed } from "./call-index.js";
import { Checkpointer, type Commitment, type Publish } from "./checkpoints.js";
import { compressSegment, removeUnfinished } from "./compressed.js";
import { type LedgerEntry, type OutcomeEntry, opensCall } from "./entry.js";
import { errnoOf, LedgerReadError, LedgerRefused, LedgerUnavailable, ledgerUnavailable } from "./errors.js";
import { type LedgerFs, type LedgerLock, nodeFs, readSmall, replaceFile } from "./files.js";
import { Journal } from "./journal.js";
import { finishRotation, isKeyName, type LedgerKeys, loadKeys, prepareRotation, type Signer } from "./note.js";
import { type PruneOptions, type PruneResult, pruneSegments } from "./prune.js";
import { recordsAt } from "./read.js";
import { type Recovered, type ResumePoint, recover, resumePath } from "./recover.js";
import { RESTORE } from "./scan.js";
import { isCompressed, listSegments } from "./segments.js";
import { rebuildTiles, type TileRebuild } from "./tiles.js";

const MODE = 0o600;
/** Tile hashes are written this many at a time, and appends stop when this many could not be written. */
const FLUSH_TILES = 4_096;
const MAX_UNWRITTEN_TILES = 65_536;
const UNKNOWN_CHUNK = 1_000;
const TENDING_CLOSE_MS = 1_000;
const MAX_LINE_LIMIT = 4 << 20;

export type OutcomeDurability = "flush" | "lazy";

export interface LedgerOptions {
  readonly dir: string;
  /** Name of this log in its checkpoints, for instance `example.com/gateway`: no spaces, no plus. */
  readonly origin: string;
  /** Private key; `signing.key` in `dir` by default. Created when the ledger is. */
  readonly keyFile?: string;
  /** Write the arguments of decisions too. Off by default: then only their content id is recorded. */
  readonly keepArguments?: boolean;
  /** Whether the answer of a call waits until its outcome is durable (`flush`) or not (`lazy`, the default). */
  readonly outcomes?: OutcomeDurability;
  /** Where checkpoints are handed out. */
  readonly publish?: Publish | readonly Publish[];
  /** External signed checkpoints that the log must still agree with. */
  readonly outside?: readonly Commitment[];
  /** A checkpoint follows a record after at most this long. Default 1000. */
  readonly checkpointMs?: number;
  /** Default 64 MiB. */
  readonly maxSegmentBytes?: number;
  /** Records that may wait for the disk. Default 65536. */
  readonly maxPending?: number;
  /** Default 64 MiB. */
  readonly maxPendingBytes?: number;
  /** Compress segments in the background once they are closed. Off by default. */
  readonly compress?: boolean;
  /** Longest record. Default 1 MiB, at most 4 MiB. */
  readonly maxLineBytes?: number;
  /** Calls that may be without an outcome at one time. Default 100000. */
  readonly maxOpenCalls?: number;
  /** How long to wait for another process that writes this ledger. Default 500. */
  readonly lockTimeoutMs?: number;
  /** How soon a failed write is tried again. Default 100, doubling to 5000 while no record comes. */
  readonly retryMs?: number;
  /** How long a write may take before its records are refused. The ledger is unhealthy until it returns. Default 5000. */
  readonly writeDeadlineMs?: number;
  /** Logs up to this size are read whole at each start, larger ones from their last full segment. Default 64 MiB. */
  readonly fullCheckBytes?: number;
  /** Tile hashes that a start holds in memory before it writes them. Default 524288. */
  readonly maxHeldLeaves?: number;
  /** Called with the seconds that each awaited record took to become durable. */
  readonly onAppended?: (seconds: number) => void;
  readonly disk?: LedgerFs;
}

export interface LedgerStatus {
  /** False while records cannot be written; nothing may run then. */
  readonly healthy: boolean;
  /** Durable records. */
  readonly size: number;
  /** Base64 root of the tree over them. */
  readonly root: string;
  /** Records that wait for the disk. */
  readonly pending: number;
  /** How long the oldest record that is not durable has waited. */
  readonly flushLagMs: number;
  /** Permitted calls without an outcome. */
  readonly openCalls: number;
  /** Records covered by the last checkpoint on disk. */
  readonly checkpointSize: number;
  readonly publicKey: string;
  /** What went wrong last and is not mended: writing, signing or handing out. */
  readonly lastError: Error | undefined;
}

export interface Ledger {
  readonly dir: string;
  readonly origin: string;
  /** Resolves when the record is durable; rejects with `LedgerUnavailable` when it is not and will not be. */
  append(entry: LedgerEntry): Promise<Receipt>;
  /**
   * Records how a call ended. With `outcomes: "flush"` the promise resolves when the record is durable, or is kept in
   * memory because the disk does not take it; with `lazy` there is nothing to wait for.
   */
  appendOutcome(entry: OutcomeEntry): Promise<void> | undefined;
  /** Rides the next flush. A failure makes the ledger unhealthy, and the record is written after recovery. */
  appendSoon(entry: LedgerEntry): void;
  /** Signs what is durable now, without waiting for the next turn, and gives the note. */
  checkpoint(): Promise<string>;
  /** Changes to a new signing key; the change is itself a record, in a checkpoint that both keys sign. */
  rotateKey(): Promise<{ old: string; new: string }>;
  /**
   * Removes closed segments whose copies in the archive were read back and checked, under a signed statement. Segments
   * with the decision of a call that has no outcome stay. Rejects with `LedgerReadError` when a copy is missing or differs.
   */
  prune(options: PruneOptions): Promise<PruneResult>;
  status(): LedgerStatus;
  /** Writes what waits, signs a last checkpoint and releases the lock. */
  close(): Promise<void>;
}

/** Opens or creates a ledger. Throws `LedgerLocked`, `LedgerRefused` (with the reason) or `LedgerUnavailable`. */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  checkOptions(options);
  const { dir, disk = nodeFs } = options;
  let lock: LedgerLock | undefined;
  try {
    if ((await disk.stat(dir)) === undefined) {
      await disk.makeDir(dir);
      await disk.syncDir(dirname(dir));
    }
    lock = await disk.lock(dir, options.lockTimeoutMs ?? 500);
    return await openLocked(options, disk, lock);
  } catch (error) {
    await lock?.release();
    if (error instanceof LedgerReadError) throw new LedgerRefused(error.message, RESTORE, error);
    throw errnoOf(error).startsWith("E") ? ledgerUnavailable(error, dir) : error;
  }
}

function checkOptions({ dir, origin, maxLineBytes = 0 }: LedgerOptions): void {
  if (typeof dir !== "string" || dir === "") throw new LedgerRefused("a ledger needs `dir`", "name a directory for it");
  if (typeof origin !== "string" || !isKeyName(origin)) {
    throw new LedgerRefused(
      origin === undefined ? "a ledger needs `origin`" : `"${origin}" cannot name a ledger`,
      "give an origin such as example.com/gateway, without spaces or plus signs",
    );
  }
  if (maxLineBytes > MAX_LINE_LIMIT) {
    throw new LedgerRefused(`maxLineBytes ${maxLineBytes} is over ${MAX_LINE_LIMIT}`, "choose a smaller limit");
  }
}

async function openLocked(options: LedgerOptions, disk: LedgerFs, lock: LedgerLock): Promise<Ledger> {
  const { dir, origin, keyFile = join(dir, "signing.key") } = options;
  const publish = [options.publish ?? []].flat() as Publish[];
  const isEmpty = (await listSegments(disk, dir)).length === 0;
  const keys = await loadKeys(disk, dir, keyFile, origin, isEmpty);
  const recovered = await recover({
    disk,
    dir,
    origin,
    keys: keys.all,
    fullCheckBytes: options.fullCheckBytes ?? 64 << 20,
    maxLineBytes: options.maxLineBytes ?? 1 << 20,
    maxOpenCalls: options.maxOpenCalls ?? 100_000,
    maxHeldLeaves: options.maxHeldLeaves ?? 512 * 1024,
    outside: [...(options.outside ?? []), ...(await publishedBefore(publish, disk))],
  });
  const ledger = new OpenLedger({ ...options, keyFile, publish, disk }, lock, keys, recovered);
  await ledger.begin(recovered);
  return ledger;
}

/** What was last handed out to a file is held against the log: a directory put back to an older state does not start. */
async function publishedBefore(publish: readonly Publish[], disk: LedgerFs): Promise<Commitment[]> {
  const found: Commitment[] = [];
  for (const target of publish) {
    if (typeof target === "function" || !("file" in target)) continue;
    const note = await readSmall(disk, target.file);
    if (note !== undefined) found.push({ from: target.file, note });
  }
  return found;
}

type FullOptions = LedgerOptions & { keyFile: string; publish: readonly Publish[]; disk: LedgerFs };

class OpenLedger implements Ledger {
  readonly dir: string;
  readonly origin: string;
  readonly #options: FullOptions;
  readonly #lock: LedgerLock;
  readonly #isNewKey: boolean;
  #signer: Signer;
  /** The key a rotation that was cut short wanted to change to. */
  #interrupted: Signer | undefined;
  readonly #tree: Recovered["tree"];
  readonly #tiles: Recovered["tiles"];
  /** Calls without an outcome, and the record that permitted each. */
  readonly #open: Map<string, number>;
  readonly #journal: Journal;
  readonly #checkpointer: Checkpointer;
  readonly #maxOpenCalls: number;
  #tileError: Error | undefined;
  #isFlushingTiles = false;
  readonly #stopBackground = new AbortController();
  #tending: Promise<void> = Promise.resolve();
  /** Writes of resume points: one that outlived `close` would be read by the next owner of the ledger. */
  #notingResume: Promise<void> = Promise.resolve();
  #hasRotated = false;
  #rebuilding: Promise<void> | undefined;
  #rebuildError: Error | undefined;
  #rotating: Promise<{ old: string; new: string }> | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: FullOptions, lock: LedgerLock, keys: LedgerKeys, recovered: Recovered) {
    const { dir, origin, disk } = options;
    this.dir = dir;
    this.origin = origin;
    this.#options = options;
    this.#lock = lock;
    this.#isNewKey = keys.isNew;
    this.#interrupted = keys.next;
    this.#signer = keys.current;
    this.#tree = recovered.tree;
    this.#tiles = recovered.tiles;
    this.#open = recovered.open;
    this.#maxOpenCalls = options.maxOpenCalls ?? 100_000;
    this.#journal = new Journal(
      { segment: recovered.segment, offset: recovered.offset, size: recovered.tree.size, prev: recovered.prev },
      {
        disk,
        dir,
        maxSegmentBytes: options.maxSegmentBytes ?? 64 << 20,
        maxPending: options.maxPending ?? 65_536,
        maxPendingBytes: options.maxPendingBytes ?? 64 << 20,
        maxLineBytes: options.maxLineBytes ?? 1 << 20,
        retryMs: options.retryMs ?? 100,
        writeDeadlineMs: options.writeDeadlineMs ?? 5_000,
        keepArguments: options.keepArguments ?? false,
        onAppended: options.onAppended,
        onDurable: (items) => this.#onDurable(items),
        onRotate: () => this.#onRotate(),
        admit: () => this.#admit(),
      },
    );
    this.#checkpointer = new Checkpointer(keys.current, {
      disk,
      dir,
      origin,
      tree: this.#tree,
      tiles: this.#tiles,
      intervalMs: options.checkpointMs ?? 1_000,
      publish: options.publish,
    });
    lock.onLost((why) => {
      this.#checkpointer.abandon();
      this.#journal.halt(new LedgerUnavailable("taken_over", why, "restart this process"));
    });
  }

  /** Writes the records of a start, and signs them. */
  async begin({ torn, open, rebuild, segment }: Recovered): Promise<void> {
    const unknown = [...open.values()].sort((a, b) => a - b);
    // Before the first record, which may close a full segment and have it compressed.
    this.#tending = removeUnfinished(this.#options.disk, this.dir).catch(() => {});
    await this.append({
      kind: "start",
      origin: this.origin,
      pid: process.pid,
      node: process.version,
      torn,
      unknown: unknown.length,
    });
    if (this.#isNewKey) await this.append({ kind: "key", old: null, new: this.#signer.vkey });
    await this.#closeOpenCalls(unknown);
    await this.checkpoint();
    if (this.#interrupted !== undefined) await this.rotateKey();
    if (rebuild !== undefined) this.#rebuildTiles(rebuild);
    this.#tendSegments(segment.first);
  }

  /**
   * In the background, for every segment before this record: builds the index that is missing, and compresses. A failure
   * costs later proofs time, or space; the next turn tries again.
   */
  #tendSegments(before: number): void {
    const { disk, compress = false } = this.#options;
    const { signal } = this.#stopBackground;
    this.#tending = this.#tending
      .then(async () => {
        for (const segment of await listSegments(disk, this.dir)) {
          if (segment.first >= before || signal.aborted) return;
          if (!(await isIndexed(disk, segment))) await indexCalls(disk, segment, signal);
          if (compress && !(await isCompressed(disk, segment))) await compressSegment(disk, segment, signal);
        }
      })
      .catch(() => {});
  }

  /** Proofs of older records fail until this has ended; records are taken meanwhile. */
  #rebuildTiles(rebuild: TileRebuild): void {
    const { disk } = this.#options;
    this.#rebuilding = rebuildTiles(disk, this.dir, rebuild, this.#stopBackground.signal).catch((error: Error) => {
      this.#rebuildError = error;
      // As at a start: no record is added to a history that is not the one that was signed.
      if (error instanceof LedgerRefused) {
        this.#checkpointer.abandon();
        this.#journal.halt(new LedgerUnavailable("history_changed", error.message, "then restart this process", error));
      }
    });
  }

  /** Calls that ran when the last process ended have an unknown outcome. */
  async #closeOpenCalls(seqs: readonly number[]): Promise<void> {
    let chunk: Promise<Receipt>[] = [];
    for await (const { record } of recordsAt(this.#options.disk, this.dir, seqs)) {
      if (record.kind !== "decision") continue;
      const { call, trace, actor, tool, args_cid } = record;
      const detail = { decision: record.seq };
      const outcome = { kind: "outcome", call, trace, actor, tool, args_cid, outcome: "unknown", detail } as const;
      chunk.push(this.append({ ...outcome, latency_ms: null, bytes: null }));
      if (chunk.length < UNKNOWN_CHUNK) continue;
      await Promise.all(chunk);
      chunk = [];
    }
    await Promise.all(chunk);
  }

  append(entry: LedgerEntry): Promise<Receipt> {
    if (this.#open.size >= this.#maxOpenCalls && opensCall(entry) !== undefined) {
      return Promise.reject(
        new LedgerUnavailable(
          "queue_full",
          `${this.#open.size} calls in ${this.dir} have no outcome yet`,
          "look for calls that never end, or raise maxOpenCalls",
        ),
      );
    }
    return this.#journal.append(entry);
  }

  appendOutcome(entry: OutcomeEntry): Promise<void> | undefined {
    if (this.#options.outcomes === "flush") {
      return this.append(entry).then(
        () => {},
        // The call has run, so its outcome is written when the disk takes records again.
        () => this.appendSoon(entry),
      );
    }
    this.appendSoon(entry);
    return undefined;
  }

  appendSoon(entry: LedgerEntry): void {
    this.#journal.appendSoon(entry);
  }

  #onDurable(items: readonly PendingBatch[]): void {
    for (const item of items) {
      if (item.opens !== undefined) this.#open.set(item.opens, item.seq);
      else if (item.closes !== undefined) this.#open.delete(item.closes);
      this.#tree.push(item.leaf);
    }
    if (this.#tiles.pending >= FLUSH_TILES) void this.#flushTiles();
    if (this.#hasRotated) {
      this.#hasRotated = false;
      this.#tendSegments((items[0] as PendingBatch).seq);
    }
    this.#checkpointer.arm();
  }

  async #flushTiles(): Promise<void> {
    if (this.#isFlushingTiles) return;
    this.#isFlushingTiles = true;
    try {
      await this.#tiles.flush();
      this.#tileError = undefined;
    } catch (error) {
      this.#tileError = error as Error;
    } finally {
      this.#isFlushingTiles = false;
    }
  }

  #admit(): LedgerUnavailable | undefined {
    if (this.#tiles.pending <= MAX_UNWRITTEN_TILES) return undefined;
    return ledgerUnavailable(this.#tileError ?? new Error("the disk is too slow for them"), join(this.dir, "tiles"));
  }

  /** Leaves a note for the next start, so that it need not read what lies before this segment. */
  #onRotate(): void {
    const edge = this.#tree.edge().map((node) => node.toString("base64"));
    const point: ResumePoint = { note: this.#checkpointer.sign(), open: [...this.#open], edge };
    this.#notingResume = this.#notingResume
      .then(async () => {
        await this.#tiles.flush();
        await this.#tiles.sync();
        await replaceFile(this.#options.disk, resumePath(this.dir), JSON.stringify(point), MODE);
      })
      .catch((error: Error) => {
        this.#tileError = error;
      });
    // Only when the next file holds a record: the last file is never compressed.
    this.#hasRotated = true;
  }

  checkpoint(): Promise<string> {
    return this.#checkpointer.run();
  }

  rotateKey(): Promise<{ old: string; new: string }> {
    this.#rotating ??= this.#rotate().finally(() => {
      this.#rotating = undefined;
    });
    return this.#rotating;
  }

  async #rotate(): Promise<{ old: string; new: string }> {
    const { disk, keyFile } = this.#options;
    const old = this.#signer;
    const next = this.#interrupted ?? (await prepareRotation(disk, this.dir, keyFile, this.origin));
    await this.append({ kind: "key", old: old.vkey, new: next.vkey });
    this.#checkpointer.use([old, next]);
    const note = await this.#checkpointer.run();
    await finishRotation(disk, this.dir, keyFile, next, note);
    this.#signer = next;
    this.#interrupted = undefined;
    this.#checkpointer.use([next]);
    return { old: old.vkey, new: next.vkey };
  }

  prune(options: PruneOptions): Promise<PruneResult> {
    const { disk } = this.#options;
    // After what compresses and indexes: two must not work on one file.
    const pruned = this.#tending.then(async () => {
      await this.#rebuilding;
      return pruneSegments(
        {
          disk,
          dir: this.dir,
          origin: this.origin,
          signer: () => this.#signer,
          append: (entry) => this.append(entry),
          commit: () => this.#commit(),
          oldestOpenCall: () => this.#oldestOpenCall(),
          stop: this.#stopBackground.signal,
        },
        options,
      );
    });
    this.#tending = pruned.then(
      () => {},
      () => {},
    );
    return pruned;
  }

  #oldestOpenCall(): number {
    let oldest = Number.POSITIVE_INFINITY;
    for (const seq of this.#open.values()) oldest = Math.min(oldest, seq);
    return oldest;
  }

  async #commit(): Promise<number> {
    await this.#checkpointer.run();
    const size = this.#checkpointer.size;
    await this.#tiles.flush();
    await this.#tiles.sync();
    return size;
  }

  status(): LedgerStatus {
    const trouble = this.#journal.trouble;
    return {
      healthy: trouble === undefined && this.#admit() === undefined,
      size: this.#tree.size,
      root: this.#tree.root(),
      pending: this.#journal.pending,
      flushLagMs: this.#journal.lagMs,
      openCalls: this.#open.size,
      checkpointSize: this.#checkpointer.size,
      publicKey: this.#signer.vkey,
      lastError: trouble ?? this.#checkpointer.error ?? this.#tileError ?? this.#rebuildError,
    };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#stopBackground.abort();
    try {
      await this.#rebuilding;
      // This work can be done at any time, so a disk that does not answer must not delay closing.
      await Promise.race([this.#tending, sleep(TENDING_CLOSE_MS, undefined, { ref: false })]);
      await this.#journal.close();
      await Promise.race([this.#notingResume, sleep(TENDING_CLOSE_MS, undefined, { ref: false })]);
    } finally {
      try {
        if (this.#journal.isStalled) this.#checkpointer.abandon();
        else await this.#checkpointer.close();
      } finally {
        // A write that is still under way must not land in a ledger that another process has opened by then.
        if (this.#journal.isStalled) void this.#journal.idle().then(() => this.#lock.release());
        else await this.#lock.release();
      }
    }
  }
}
