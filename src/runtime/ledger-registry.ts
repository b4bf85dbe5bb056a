// The store knows every ledger that gateways on it write, and the last checkpoint of each. A ledger that is behind that
// checkpoint, or another one under the same origin, does not start; each ledger records the checkpoints of the others.

import { hostname } from "node:os";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Commitment, Ledger, Publish } from "../ledger/index.js";
import type { Storage } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import { writePosition } from "./store-rollback.js";

/** A checkpoint is signed every second; the store gets one this often. */
const REGISTER_MS = 5_000;
const ANCHOR_MS = 60_000;
const MAX_ANCHORS = 100;
/** How long a disk may take at the end. */
const LAST_NOTE_MS = 1_000;

type Ledgers = Storage["ledgers"];
type Taken = Parameters<typeof writePosition>[1];

/** The checkpoint that the log of this origin must still agree with. */
export async function registeredCheckpoint(ledgers: Ledgers, origin: string, dir: string): Promise<Commitment[]> {
  const found = await ledgers.get(origin, placeOf(dir));
  if (!found) return [];
  const from = `the store's registry (to give this ledger up: portcullis audit forget ${origin})`;
  return [{ from, note: found.note }];
}

/** Where a ledger is, among all machines that use the store. */
export function placeOf(dir: string): string {
  return `${hostname()}:${resolve(dir)}`;
}

/** Origin and size, the first two lines of a checkpoint. */
function headOf(note: string): { origin: string; size: number } {
  const [origin = "", size = ""] = note.split("\n", 2);
  return { origin, size: Number(size) };
}

export class LedgerRegistry {
  readonly #ledgers: Ledgers;
  readonly #telemetry: Telemetry;
  #dir = "";
  #place = "";
  #taken: Taken | undefined;
  #noting: Promise<void> | undefined;
  #latest: string | undefined;
  readonly #anchored = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(ledgers: Ledgers, telemetry: Telemetry) {
    this.#ledgers = ledgers;
    this.#telemetry = telemetry;
  }

  /** Handed every checkpoint of the ledger; never makes the ledger wait. */
  readonly publish: Publish = (note: string): void => {
    this.#latest = note;
    // INVARIANT: nothing is registered before a start has compared the ledger with what the store knows of it.
    if (this.#place === "") return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#register();
    }, REGISTER_MS).unref();
  };

  /** Registers the ledger now, and records from time to time what the others have come to. */
  async begin(ledger: Ledger): Promise<() => Promise<void>> {
    this.#dir = ledger.dir;
    this.#place = placeOf(ledger.dir);
    this.#latest ??= await ledger.checkpoint();
    await this.#register();
    const timer = setInterval(() => {
      this.anchor(ledger).catch((error: Error) =>
        this.#telemetry.log.warning("checkpoints of other ledgers could not be recorded", { problem: error.message }),
      );
    }, ANCHOR_MS);
    timer.unref();
    return async () => {
      clearInterval(timer);
      clearTimeout(this.#timer);
      await this.#register();
      await Promise.race([this.#noting, sleep(LAST_NOTE_MS, undefined, { ref: false })]);
    };
  }

  #register(): Promise<void> {
    const note = this.#latest;
    if (note === undefined) return this.#writing;
    this.#latest = undefined;
    this.#writing = this.#writing
      .then(() => this.#ledgers.put({ ...headOf(note), place: this.#place, note }))
      .then(() => this.#note(headOf(note)))
      .catch((error: Error) => {
        this.#latest ??= note;
        this.#telemetry.log.warning("the ledger's checkpoint did not reach the store", { problem: error.message });
      });
    return this.#writing;
  }

  /** Not waited for: a disk that does not answer must not keep the checkpoint from the store. */
  #note({ origin, size }: { readonly origin: string; readonly size: number }): void {
    this.#taken = { origin, place: this.#place, size };
    this.#noting ??= this.#writeTaken().finally(() => {
      this.#noting = undefined;
    });
  }

  async #writeTaken(): Promise<void> {
    for (let written: Taken | undefined; this.#taken && this.#taken !== written; ) {
      written = this.#taken;
      // Without it the next start has less to go by.
      await writePosition(this.#dir, written).catch(() => {});
    }
  }

  /** Records the checkpoints of the other ledgers that have grown since the last time. */
  async anchor(ledger: Ledger): Promise<void> {
    const seen = this.#anchored;
    const others = (await this.#ledgers.list()).filter(
      ({ origin, size }) => origin !== ledger.origin && seen.get(origin) !== size,
    );
    const anchors = others.slice(0, MAX_ANCHORS);
    if (anchors.length === 0) return;
    await ledger.append({
      kind: "admin",
      actor: "portcullis",
      action: "ledger.anchor",
      detail: { checkpoints: anchors.map(({ origin, size, note }) => ({ origin, size, note })) },
    });
    for (const { origin, size } of anchors) seen.set(origin, size);
  }
}
