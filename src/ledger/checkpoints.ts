import { join } from "node:path";
import { type LedgerFs, replaceFile } from "./files.js";
import { checkpointText, signNote, type Signer } from "./note.js";
import { type Publish, publishNote } from "./publish.js";
import type { TileWriter } from "./tiles.js";
import type { Tree } from "./tree.js";

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

  /** Says that there may be something new. */
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

  /** Ends at once and leaves the folder alone, because it belongs to another process now. */
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
