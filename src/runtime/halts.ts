// The emergency stop of one process: halts of the store, followed by its feed, and the file HALT of the data directory,
// which needs neither a store nor a command.

import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { HaltControl } from "../admin/index.js";
import type { Ledger } from "../ledger/index.js";
import { type Halt, Halts, type HaltTarget } from "../policy/index.js";
import type { Storage, StoredHalt } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";

export const HALT_FILE = "HALT";
const POLL_MS = 250;
const RETRY_MS = 250;
const MAX_FILE_BYTES = 64 * 1024;
/** As for keys: a halt may have been missed when changes of the store were not read for so long. */
const MAX_SILENCE_MS = 60_000;

export interface HaltsHere extends HaltControl {
  /** What every gate of this process checks. */
  readonly halts: Halts;
  close(): Promise<void>;
}

interface HaltOptions {
  readonly stateDir: string;
  readonly storage: Pick<Storage, "halts" | "feed">;
  readonly ledger: Pick<Ledger, "append">;
  readonly telemetry: Pick<Telemetry, "log">;
}

/** Resolves when the halts in force are known: a gateway that starts while calls are halted decides none before. */
export async function followHalts(options: HaltOptions): Promise<HaltsHere> {
  const { stateDir, storage } = options;
  const { log } = options.telemetry;
  let isRead = false;
  const halts = new Halts(() => {
    if (!isRead) return "the halts of the store cannot be read";
    const { lagMs } = storage.feed;
    return lagMs <= MAX_SILENCE_MS ? undefined : `the store has not been read for ${Math.round(lagMs / 1_000)} s`;
  });
  let turn: Promise<void> = Promise.resolve();
  let isClosed = false;
  const read = async (): Promise<void> => {
    for (; !isClosed; await new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref())) {
      try {
        halts.set("store", (await storage.halts.list()).map(asHalt));
        isRead = true;
        return;
      } catch (error) {
        // From the change on until it is known what it was, calls are denied.
        isRead = false;
        log.error("halts cannot be read, calls are denied", { problem: (error as Error).message });
      }
    }
  };
  const reread = (): Promise<void> => (turn = turn.then(read));
  const unwatch = await storage.feed.watch({
    change: ({ topic, action }) => {
      if (topic === "halt" || action === "restored") void reread();
    },
    resync: () => void reread(),
  });
  await reread();
  const file = new HaltFile(join(stateDir, HALT_FILE), options, (found) => halts.set("file", found));
  await file.read();
  const timer = setInterval(() => void file.read(), POLL_MS);
  timer.unref();
  return {
    halts,
    list: () => halts.all,
    put: async (target, reason, by) => {
      const made = asHalt(await storage.halts.put({ name: Halts.nameOf(target), app: target.app ?? "", reason }, by));
      await reread();
      return made;
    },
    remove: async (target, by) => {
      const isGone = await storage.halts.remove(Halts.nameOf(target), by);
      await reread();
      return isGone;
    },
    close: async () => {
      isClosed = true;
      clearInterval(timer);
      unwatch();
      await turn;
    },
  };
}

/** A name that this version cannot read halts everything. */
export function asHalt({ name, reason, by, at }: StoredHalt): Halt {
  return { target: Halts.parse(name) ?? {}, by, reason, at, source: "store" };
}

/** An empty file halts everything; otherwise each line is a target, and a line after `#` the reason. */
class HaltFile {
  readonly #path: string;
  readonly #options: HaltOptions;
  readonly #found: (halts: readonly Halt[]) => void;
  #seen = "";
  #since = new Map<string, number>();
  #reading = false;

  constructor(path: string, options: HaltOptions, found: (halts: readonly Halt[]) => void) {
    this.#path = path;
    this.#options = options;
    this.#found = found;
  }

  async read(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    try {
      const text = await this.#text();
      const seen = text === undefined ? "" : `=${text}`;
      if (seen === this.#seen) return;
      this.#seen = seen;
      const { targets, reason } = text === undefined ? { targets: [], reason: "" } : targetsIn(text);
      this.#apply(targets, reason);
    } finally {
      this.#reading = false;
    }
  }

  /** Undefined where there is no file. A file that cannot be read halts everything, like an empty one. */
  async #text(): Promise<string | undefined> {
    try {
      const { size } = await stat(this.#path);
      return size > MAX_FILE_BYTES ? "" : await readFile(this.#path, "utf8");
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === "ENOENT" ? undefined : "";
    }
  }

  #apply(targets: readonly HaltTarget[], reason: string): void {
    const { log } = this.#options.telemetry;
    const before = this.#since;
    this.#since = new Map(
      targets.map((target) => [Halts.nameOf(target), before.get(Halts.nameOf(target)) ?? Date.now()]),
    );
    this.#found(
      targets.map((target) => {
        const at = this.#since.get(Halts.nameOf(target)) as number;
        return { target, by: `the file ${HALT_FILE}`, reason, at, source: "file" };
      }),
    );
    const changes = [
      ...[...this.#since.keys()].filter((name) => !before.has(name)).map((name) => ["halt.put", name] as const),
      ...[...before.keys()].filter((name) => !this.#since.has(name)).map((name) => ["halt.remove", name] as const),
    ];
    for (const [action, name] of changes) {
      log.notice(action === "halt.put" ? "calls halted by file" : "calls resumed by file", { target: name });
      const record = { kind: "admin", actor: "file", action, detail: { name, reason, file: HALT_FILE } } as const;
      // In force before it is on record: a ledger that cannot be written must not keep an emergency stop from working.
      this.#options.ledger.append(record).catch((error: Error) => {
        log.error("a halt by file is not recorded", { target: name, problem: error.message });
      });
    }
  }
}

/** A line that is not a target halts everything. */
function targetsIn(text: string): { targets: readonly HaltTarget[]; reason: string } {
  const lines = text.split("\n").map((line) => line.trim());
  const notes = lines.filter((line) => line.startsWith("#")).map((line) => line.slice(1).trim());
  const names = lines.filter((line) => line !== "" && !line.startsWith("#"));
  const targets = names.map((line) => Halts.parse(line) ?? {});
  const unique = new Map(targets.map((target) => [Halts.nameOf(target), target]));
  if (names.length === 0) unique.set(Halts.nameOf({}), {});
  return { targets: [...unique.values()], reason: notes.join(" ").slice(0, 500) };
}
