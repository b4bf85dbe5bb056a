// Whose turn it is to write to a repository. A turn saves work and guarantees nothing: the guarantee is the
// compare-and-set of the store, so a turn that is taken from a writer that still lives costs a second try and no update.

import { randomUUID } from "node:crypto";
import { closeSync, openSync, readFileSync, renameSync, statSync, unlinkSync, utimesSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../mcp/index.js";

const POLL_MS = 4;
/** git's own lock files, which it takes away itself unless it was killed. */
const GIT_LOCK_STALE_MS = 15_000;

export interface TurnLimits {
  readonly lockTimeoutMs: number;
  readonly maxWaitMs: number;
  readonly maxWaiting: number;
}

interface Line {
  tail: Promise<unknown>;
  length: number;
}

/** Writers of this process, by repository. */
const lines = new Map<string, Line>();

export async function inRepositoryTurn<T>(directory: string, limits: TurnLimits, work: () => Promise<T>): Promise<T> {
  const line = lines.get(directory) ?? { tail: Promise.resolve(), length: 0 };
  if (line.length >= limits.maxWaiting) throw busy();
  lines.set(directory, line);
  line.length++;
  const turn = line.tail.then(async () => {
    const release = await takeLock(directory, limits);
    try {
      return await work();
    } finally {
      release();
    }
  });
  line.tail = turn.catch(() => undefined);
  try {
    return await turn;
  } finally {
    if (--line.length === 0) lines.delete(directory);
  }
}

export function busy(): Fault {
  return new Fault("TooMany", "too many writers at once; nothing was changed", {
    rule: "state",
    suggestions: ["try again in a moment"],
  });
}

/** Against writers of other processes. The holder touches the file regularly; a file that is not touched is taken over. */
async function takeLock(directory: string, { lockTimeoutMs, maxWaitMs }: TurnLimits): Promise<() => void> {
  const file = join(directory, "portcullis.turn");
  const mine = randomUUID();
  const until = performance.now() + maxWaitMs;
  while (!tryCreate(file, mine)) {
    removeStale(file, lockTimeoutMs);
    if (performance.now() >= until) throw busy();
    await pause(POLL_MS + Math.random() * 3 * POLL_MS);
  }
  const alive = setInterval(() => touch(file), Math.max(10, lockTimeoutMs / 5));
  return () => {
    clearInterval(alive);
    release(file, mine);
  };
}

/** Should the turn be another's by now, it lives a little longer: no harm done. */
function touch(file: string): void {
  const now = new Date();
  try {
    utimesSync(file, now, now);
  } catch {
    // Taken over, and already given back.
  }
}

function tryCreate(file: string, mine: string): boolean {
  let fd: number;
  try {
    fd = openSync(file, "wx", 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
  try {
    writeSync(fd, mine);
  } finally {
    closeSync(fd);
  }
  return true;
}

function release(file: string, mine: string): void {
  try {
    if (readFileSync(file, "utf8") === mine) unlinkSync(file);
  } catch {
    // Taken away as stale: then it is no longer ours.
  }
}

/** A lock file that a killed process left behind. Renamed first, so that of several that see it one removes it. */
export function removeStale(file: string, olderThanMs = GIT_LOCK_STALE_MS): void {
  try {
    if (Math.abs(Date.now() - statSync(file).mtimeMs) < olderThanMs) return;
    const aside = `${file}.${randomUUID()}.stale`;
    renameSync(file, aside);
    unlinkSync(aside);
  } catch {
    // Gone already.
  }
}
