// Whose turn it is to write to a repository. A turn saves work, it is no promise: the promise is kept by the
// compare-and-set on the branch, so a turn that is taken from a dead or slow writer costs a second try and no update.

import { randomUUID } from "node:crypto";
import { closeSync, openSync, readFileSync, renameSync, statSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../protocol/index.js";

const STALE_MS = 15_000;
const POLL_MS = 4;

interface Line {
  tail: Promise<unknown>;
  length: number;
}

/** Writers of this process, by repository. */
const lines = new Map<string, Line>();

export async function inTurn<T>(
  folder: string,
  limits: { lockTimeoutMs: number; maxWaiting: number },
  work: () => Promise<T>,
): Promise<T> {
  const line = lines.get(folder) ?? { tail: Promise.resolve(), length: 0 };
  if (line.length >= limits.maxWaiting) throw busy();
  lines.set(folder, line);
  line.length++;
  const turn = line.tail.then(async () => {
    const release = await takeLock(folder, limits.lockTimeoutMs);
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
    if (--line.length === 0) lines.delete(folder);
  }
}

export function busy(): Fault {
  return new Fault("TooMany", "too many writers at once; nothing was changed", {
    rule: "state",
    suggestions: ["try again in a moment"],
  });
}

/** Against writers of other processes. Gives up after a while and lets the compare-and-set decide. */
async function takeLock(folder: string, timeoutMs: number): Promise<() => void> {
  const file = join(folder, "portcullis.turn");
  const mine = randomUUID();
  const until = performance.now() + timeoutMs;
  for (;;) {
    if (tryCreate(file, mine)) return () => release(file, mine);
    removeStale(file);
    if (performance.now() >= until) return () => undefined;
    await pause(POLL_MS + Math.random() * 3 * POLL_MS);
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
export function removeStale(file: string, olderThanMs = STALE_MS): void {
  try {
    if (Date.now() - statSync(file).mtimeMs < olderThanMs) return;
    const aside = `${file}.${randomUUID()}.stale`;
    renameSync(file, aside);
    unlinkSync(aside);
  } catch {
    // Gone already.
  }
}
