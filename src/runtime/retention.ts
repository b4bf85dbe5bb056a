// A gateway that keeps its ledger within bounds: closed files go to the archive, and those past their time or over the
// size are pruned once their copies were read back.

import { InvalidArgumentError } from "commander";
import { type Archive, archiveSegments, keptFrom, type Ledger, type Retention } from "../ledger/index.js";
import type { Telemetry } from "../telemetry/index.js";
import { CliError, EXIT } from "../lib/exit.js";

const DAY_MS = 24 * 3_600_000;
const MIB = 1024 * 1024;
const EVERY_MS = 60_000;
const BY = "portcullis retention";

export interface RetentionFlags {
  keepDays?: number;
  keepSize?: number;
}

export function keepDays(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0 && value <= 100_000) return value;
  throw new InvalidArgumentError("write a number of days, more than 0");
}

export function keepSize(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0 && value <= 1024 * 1024 * 1024) return value;
  throw new InvalidArgumentError("write a number of MiB");
}

export function retentionOf({ keepDays: days, keepSize: mib }: RetentionFlags): Retention {
  return {
    keepMs: days === undefined ? undefined : days * DAY_MS,
    keepBytes: mib === undefined ? undefined : mib * MIB,
  };
}

export interface RetentionOptions extends Retention {
  readonly archive: Archive;
  close(): Promise<void>;
}

/** Throws when something is to be removed without a place where it goes. */
export function checkRetention(archive: string | undefined, flags: RetentionFlags): void {
  if (archive !== undefined || (flags.keepDays === undefined && flags.keepSize === undefined)) return;
  throw new CliError("--keep-days and --keep-size need --archive", EXIT.usage, "name where pruned records go");
}

/** One turn: archives what was closed since record `from`, then prunes what need not be kept. Returns the next `from`. */
async function retain(ledger: Ledger, options: RetentionOptions, from: number, signal: AbortSignal): Promise<number> {
  const { archive, keepMs, keepBytes } = options;
  await ledger.checkpoint();
  const { to } = await archiveSegments(ledger.dir, archive, { from, signal });
  if (signal.aborted || (keepMs === undefined && keepBytes === undefined)) return to;
  const before = Math.min(to, await keptFrom(ledger.dir, { keepMs, keepBytes }));
  if (before > 0) await ledger.prune({ archive, before, by: BY });
  return to;
}

export interface RunningRetention {
  /** Why the last turn failed; undefined after one that succeeded. */
  readonly problem: string | undefined;
  close(): Promise<void>;
}

/** Retains now and every minute. A failure is logged and tried again; the ledger keeps everything meanwhile. */
export function startRetention(
  ledger: Ledger,
  options: RetentionOptions,
  { log }: Pick<Telemetry, "log">,
  everyMs = EVERY_MS,
): RunningRetention {
  const stop = new AbortController();
  let problem: string | undefined;
  let from = 0;
  let running: Promise<void> | undefined;
  const turn = (): void => {
    running ??= retain(ledger, options, from, stop.signal)
      .then((next) => {
        if (problem !== undefined) log.notice("archiving the ledger recovered");
        problem = undefined;
        from = next;
      })
      .catch((error: Error) => {
        if (stop.signal.aborted) return;
        // What was taken for archived may not be: look at all of it again.
        from = 0;
        problem = error.message;
        log.error("the ledger could not be archived or pruned", { problem });
      })
      .finally(() => {
        running = undefined;
      });
  };
  turn();
  const timer = setInterval(turn, everyMs);
  timer.unref();
  return {
    get problem() {
      return problem;
    },
    async close() {
      clearInterval(timer);
      stop.abort();
      await Promise.race([running, new Promise((resolve) => setTimeout(resolve, 1_000).unref())]);
      await options.close();
    },
  };
}
