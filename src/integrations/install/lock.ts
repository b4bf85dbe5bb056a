// One install or update at a time. The lock is a file `lock.<n>` and the highest n owns it; making `lock.<n+1>` with
// O_EXCL is a compare-and-set, so that exactly one of two processes that find a dead owner continues.

import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { CliError } from "../../lib/exit.js";

const STARTING_MS = 30_000;
const NAME = /^lock\.(\d{1,12})$/;

export async function withLock<T>(root: string, work: () => Promise<T>): Promise<T> {
  await mkdir(root, { recursive: true, mode: 0o755 });
  const mine = take(root);
  try {
    return await work();
  } finally {
    // Marked, not removed: a number must not be used twice while another process looks for the highest.
    writeFileSync(mine, "{}");
  }
}

function take(root: string): string {
  const top = highest(root);
  const holder = top === 0 ? undefined : holderOf(join(root, `lock.${top}`));
  if (holder !== undefined) throw busy(root, holder);
  const path = join(root, `lock.${top + 1}`);
  try {
    writeFileSync(path, JSON.stringify({ pid: process.pid, host: hostname() }), { flag: "wx", mode: 0o644 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw busy(root, "another process");
    throw error;
  }
  if (highest(root) !== top + 1) {
    rmSync(path, { force: true });
    throw busy(root, "another process");
  }
  for (const name of readdirSync(root)) {
    const number = Number(NAME.exec(name)?.[1] ?? Number.POSITIVE_INFINITY);
    if (number <= top) rmSync(join(root, name), { force: true });
  }
  return path;
}

function busy(root: string, who: string): CliError {
  return new CliError(`${who} is installing or updating in ${root}`, 1, "wait until it is done, then try again");
}

function highest(root: string): number {
  return Math.max(0, ...readdirSync(root).map((name) => Number(NAME.exec(name)?.[1] ?? 0)));
}

/** The process that holds the lock; undefined when none does. */
function holderOf(path: string): string | undefined {
  let owner: { pid?: number; host?: string };
  try {
    owner = JSON.parse(readFileSync(path, "utf8")) as typeof owner;
  } catch {
    // Made and not written yet, or its maker died in between: the age decides.
    const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0);
    return age < STARTING_MS ? "a process that is just starting" : undefined;
  }
  if (owner.pid === undefined) return undefined;
  const who = `process ${owner.pid} on ${owner.host}`;
  // Of another machine we cannot tell; a person can, and removes the file.
  if (owner.host !== hostname()) return `${who} (remove ${path} if that is over)`;
  try {
    process.kill(owner.pid, 0);
    return who;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM" ? who : undefined;
  }
}
