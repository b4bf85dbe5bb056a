// Every client starts a gateway of its own on stdio, and a ledger has one writer: each takes the first that is free.

import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Commitment,
  type Ledger,
  LedgerLocked,
  type LedgerOptions,
  openLedger,
  type Publish,
} from "../ledger/index.js";
import { CliError } from "../lib/exit.js";
import type { Storage } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import { FURTHER_LEDGERS } from "./ledgers.js";
import { writePosition } from "./store-rollback.js";

const MAX_LEDGERS = 64;

interface OpenedLedger {
  readonly ledger: Ledger;
  /** 1 for the data directory's own. */
  readonly nth: number;
}

/** `named` gives the origin of the nth. */
export async function openFreeLedger(
  stateDir: string,
  named: (nth: number) => string,
  options: Omit<LedgerOptions, "dir" | "origin">,
  outside: (origin: string, dir: string) => Promise<readonly Commitment[]> = async () => [],
  places: (nth: number) => { readonly dir: string } = (nth) => ({
    dir: nth === 1 ? join(stateDir, "ledger") : join(stateDir, FURTHER_LEDGERS, String(nth)),
  }),
): Promise<OpenedLedger> {
  for (let nth = 1; nth <= MAX_LEDGERS; nth++) {
    const { dir } = places(nth);
    try {
      const origin = named(nth);
      const all = { ...options, dir, origin, outside: await outside(origin, dir), lockTimeoutMs: 100 };
      return { ledger: await openLedger(all), nth };
    } catch (error) {
      if (!(error instanceof LedgerLocked)) throw error;
    }
  }
  throw new CliError(`${MAX_LEDGERS} gateways are already running on ${stateDir}`);
}

/** A ledger in a directory that the operator chose. */
export async function openNamedLedger(
  dir: string,
  origin: string,
  options: Omit<LedgerOptions, "dir" | "origin">,
  outside: (origin: string, dir: string) => Promise<readonly Commitment[]>,
  lockTimeout: number | undefined,
): Promise<OpenedLedger> {
  const lockTimeoutMs = lockTimeout === undefined ? undefined : lockTimeout * 1_000;
  return {
    ledger: await openLedger({ ...options, dir, origin, outside: await outside(origin, dir), lockTimeoutMs }),
    nth: 1,
  };
}

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

const LOOK_MS = 5_000;

/** Gives back what ends the watch. */
export function watchLedger(ledger: Pick<Ledger, "status">, { log }: Pick<Telemetry, "log">): () => void {
  let reported: string | undefined;
  const timer = setInterval(() => {
    const problem = ledger.status().lastError?.message;
    if (problem !== undefined && problem !== reported) log.error("the ledger has a problem", { problem });
    else if (problem === undefined && reported !== undefined) log.notice("ledger recovered");
    reported = problem;
  }, LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
