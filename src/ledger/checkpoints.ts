import { spawn } from "node:child_process";
import { join } from "node:path";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, readSmall, replaceFile } from "./files.js";
import {
  type Checkpoint,
  checkpointText,
  openCheckpoint,
  readRotationNotes,
  readVerifiers,
  type Signer,
  signNote,
  type Verifier,
} from "./note.js";
import type { TileWriter } from "./tiles.js";
import type { Tree } from "./tree.js";

/** A signed checkpoint that the log has to agree with, and where it was found. */
export interface Commitment {
  readonly from: string;
  readonly note: string;
}

/** The last checkpoint, opened with the keys beside the log. */
export interface LastCheckpoint extends Checkpoint {
  readonly note: string;
  readonly signedBy: readonly Verifier[];
  readonly keys: readonly Verifier[];
}

export async function lastCheckpoint(disk: LedgerFs, dir: string): Promise<LastCheckpoint> {
  const note = await readSmall(disk, checkpointPath(dir));
  if (note === undefined) throw new LedgerReadError(`${dir} holds no checkpoint: is it a ledger directory?`);
  const keys = await readVerifiers(disk, dir);
  return { ...openCheckpoint(note, keys), note, keys };
}

/** The checkpoints kept beside the log: the last one, and those that introduced a key. */
export async function storedCommitments(disk: LedgerFs, dir: string): Promise<Commitment[]> {
  const found: Commitment[] = [];
  const last = await readSmall(disk, checkpointPath(dir));
  if (last !== undefined) found.push({ from: checkpointPath(dir), note: last });
  for (const { id, note } of await readRotationNotes(disk, dir)) {
    found.push({ from: join(dir, "keys", `${id}.note`), note });
  }
  return found;
}

/** Where checkpoints go, so that someone other than the owner of this disk can hold the ledger to them. */
export type Publish =
  /** Replaced each time; put it on another disk or a synced directory. Read again at start: the log must still match. */
  | { readonly file: string }
  /** Run without a shell, the note on its standard input. */
  | { readonly command: readonly [string, ...string[]]; readonly timeoutMs?: number }
  | ((note: string) => void | Promise<void>);

const TIMEOUT_MS = 10_000;
const MAX_ERROR_BYTES = 2_000;
const PUBLISHED_MODE = 0o644;

export async function publishNote(target: Publish, note: string, disk: LedgerFs = nodeFs): Promise<void> {
  if (typeof target === "function") return withLimit(Promise.resolve(target(note)));
  if ("file" in target) return replaceFile(disk, target.file, note, PUBLISHED_MODE);
  return runCommand(target.command, note, target.timeoutMs ?? TIMEOUT_MS);
}

function withLimit(work: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`publishing the checkpoint took longer than ${TIMEOUT_MS} ms`)),
      TIMEOUT_MS,
    );
    timer.unref();
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function runCommand(
  [command, ...args]: readonly [string, ...string[]],
  note: string,
  timeoutMs: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ["pipe", "ignore", "pipe"],
      timeout: timeoutMs,
      killSignal: "SIGKILL",
    });
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr = (stderr + text).slice(-MAX_ERROR_BYTES);
    });
    child.on("error", (error) => reject(new Error(`cannot run ${command} to publish a checkpoint: ${error.message}`)));
    child.on("close", (code, signal) => {
      if (code === 0) return resolve();
      const how = signal === null ? `exit code ${code}` : `${signal} (limit ${timeoutMs} ms)`;
      reject(new Error(`${command} did not publish the checkpoint: ${how} ${stderr.trim()}`.trim()));
    });
    // A command that does not read its input still decides by its exit code.
    child.stdin.on("error", () => {});
    child.stdin.end(note);
  });
}

const MODE = 0o600;

export function checkpointPath(dir: string): string {
  return join(dir, "checkpoint");
}

export interface CheckpointerOptions {
  readonly disk: LedgerFs;
  readonly dir: string;
  readonly origin: string;
  readonly tree: Tree;
  readonly tiles: TileWriter;
  readonly intervalMs: number;
  readonly publish: readonly Publish[];
}

/**
 * Signs the tree about once a second while there is something new, keeps the note beside the log and hands it out.
 * INVARIANT: the tree holds durable records only, so a signed size is never ahead of the log.
 */
export class Checkpointer {
  readonly #options: CheckpointerOptions;
  #signers: readonly Signer[];
  #stored = -1;
  #note = "";
  #published = "";
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #publishing: Promise<void> | undefined;
  #error: Error | undefined;
  #publishError: Error | undefined;
  #closed = false;
  #isAbandoned = false;

  constructor(signer: Signer, options: CheckpointerOptions) {
    this.#options = options;
    this.#signers = [signer];
  }

  /** Size of the last checkpoint on disk. */
  get size(): number {
    return Math.max(0, this.#stored);
  }

  get error(): Error | undefined {
    return this.#error ?? this.#publishError;
  }

  /** Schedules a checkpoint. */
  arm(): void {
    if (this.#timer !== undefined || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.run().catch(() => {});
    }, this.#options.intervalMs);
    this.#timer.unref();
  }

  /** The note for the tree as it is now. */
  sign(): string {
    const { origin, tree } = this.#options;
    return signNote(checkpointText({ origin, size: tree.size, root: tree.root() }), this.#signers);
  }

  use(signers: readonly Signer[]): void {
    this.#signers = signers;
  }

  /** Signs and stores now, and has the note handed out. One at a time; rejects when it could not be stored. */
  async run(): Promise<string> {
    while (this.#running !== undefined) await this.#running.catch(() => {});
    this.#running = this.#run().finally(() => {
      this.#running = undefined;
    });
    await this.#running;
    return this.#note;
  }

  async #run(): Promise<void> {
    const { disk, dir, tree, tiles } = this.#options;
    if (this.#isAbandoned) throw new Error(`ledger ${dir} belongs to another process now`);
    if (tree.size !== this.#stored) {
      const size = tree.size;
      const note = this.sign();
      try {
        await tiles.flush();
        await replaceFile(disk, checkpointPath(dir), note, MODE);
      } catch (error) {
        this.#error = error as Error;
        this.arm();
        throw error;
      }
      this.#error = undefined;
      this.#stored = size;
      this.#note = note;
    }
    this.#publishing ??= this.#publish().finally(() => {
      this.#publishing = undefined;
      if (this.#published !== this.#note) this.arm();
    });
  }

  // Slow receivers do not hold up the next checkpoint: whatever is newest when they are done goes out next.
  async #publish(): Promise<void> {
    const note = this.#note;
    if (this.#published === note) return;
    const results = await Promise.allSettled(
      this.#options.publish.map((target) => publishNote(target, note, this.#options.disk)),
    );
    const failed = results.find((result) => result.status === "rejected");
    this.#publishError = failed === undefined ? undefined : (failed.reason as Error);
    if (failed === undefined) this.#published = note;
  }

  /** Ends at once and leaves the directory alone, because it belongs to another process now. */
  abandon(): void {
    this.#closed = true;
    this.#isAbandoned = true;
    clearTimeout(this.#timer);
  }

  /** Signs what is left, hands it out and stops. */
  async close(): Promise<void> {
    if (this.#isAbandoned) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#publishing;
    await this.run();
    await this.#publishing;
  }
}
