import { randomUUID } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type KernelLock, takeKernelLock } from "../lib/index.js";
import { errnoOf, LedgerLocked } from "./errors.js";
import type { LedgerLock } from "./files.js";

// One process writes a ledger. Two locks show who: the kernel's lock on the file `lock`, which ends with its process and
// so gives a killed container its ledger back at once, and a file `lock.<n>`, of which the highest n owns the directory.
// The second one works where the kernel's lock does not (no koffi, two machines on one disk, an older version).
// Numbers only grow: creating `lock.<n+1>` with O_EXCL is a compare-and-set, so of several processes that
// find a dead owner exactly one succeeds. An owner that leaves marks its file as released instead of deleting it.

const NAME = /^lock\.(\d{1,15})$/;
const POLL_MS = 25;
const HEARTBEAT_MS = 5_000;
/** An owner we cannot look at (another container or machine) counts as dead after this long without a heartbeat. */
const DEAD_AFTER_MS = 30_000;

interface Owner {
  readonly token: string;
  readonly pid: number;
  readonly host: string;
  /** Boot id and process namespace: pids can be compared only where these are equal. */
  readonly world: string;
  /** When the process started, in clock ticks: a pid that was used again has another one. */
  readonly started: string;
  readonly since: string;
  /** The owner holds the kernel's lock as well. */
  readonly kernel?: boolean;
  readonly released?: boolean;
}

function tryRead(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

function startOf(pid: number): string {
  const stat = tryRead(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  // The second field is the command in brackets and may hold anything: count from its end. Field 22 is the start time.
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

function describeSelf(kernel: boolean): Owner {
  const boot = tryRead(() => readFileSync("/proc/sys/kernel/random/boot_id", "latin1")).trim();
  const space = tryRead(() => readlinkSync("/proc/self/ns/pid"));
  return {
    token: randomUUID(),
    pid: process.pid,
    host: hostname(),
    world: `${boot} ${space}`.trim(),
    started: startOf(process.pid),
    since: new Date().toISOString(),
    kernel,
  };
}

function pidExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errnoOf(error) === "EPERM";
  }
}

/** Why the owner still counts as alive, or undefined when the lock may be taken. */
function whyHeld(owner: Owner | undefined, self: Owner, heartbeatAgeMs: number): string | undefined {
  const age = `${Math.max(0, Math.round(heartbeatAgeMs / 1000))} s`;
  if (owner === undefined) {
    return heartbeatAgeMs > DEAD_AFTER_MS ? undefined : `a process that is just starting (its lock is ${age} old)`;
  }
  if (owner.released === true) return undefined;
  const who = `process ${owner.pid} on ${owner.host}, since ${owner.since}`;
  // Under one kernel only one process holds its lock. It is ours, so an owner that had it has ended.
  const isSameKernel = owner.world !== "" && owner.world.split(" ")[0] === self.world.split(" ")[0];
  if (owner.kernel === true && self.kernel === true && isSameKernel) return undefined;
  if (owner.host === self.host && owner.world === self.world) {
    const alive = pidExists(owner.pid) && startOf(owner.pid) === owner.started;
    return alive ? who : undefined;
  }
  const wait = Math.ceil((DEAD_AFTER_MS - heartbeatAgeMs) / 1000);
  if (wait <= 0) return undefined;
  return `${who} (last sign of life ${age} ago; it counts as dead in ${wait} s)`;
}

async function highest(dir: string): Promise<number> {
  let top = 0;
  for (const name of await fs.readdir(dir)) {
    const match = NAME.exec(name);
    if (match !== null) top = Math.max(top, Number(match[1]));
  }
  return top;
}

async function readOwner(path: string): Promise<{ owner: Owner | undefined; ageMs: number } | undefined> {
  try {
    const [text, facts] = await Promise.all([fs.readFile(path, "utf8"), fs.stat(path)]);
    let owner: Owner | undefined;
    try {
      owner = JSON.parse(text) as Owner;
    } catch {
      // Created but not written yet, or its writer died in between: the age decides.
    }
    return { owner, ageMs: Date.now() - facts.mtimeMs };
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** Tries once. Answers the number owned, or why not. */
async function tryTake(dir: string, self: Owner): Promise<number | string> {
  const top = await highest(dir);
  if (top > 0) {
    const current = await readOwner(join(dir, `lock.${top}`));
    if (current === undefined) return "a process that is just starting";
    const held = whyHeld(current.owner, self, current.ageMs);
    if (held !== undefined) return held;
  }
  const mine = top + 1;
  const path = join(dir, `lock.${mine}`);
  try {
    await fs.writeFile(path, JSON.stringify(self), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (errnoOf(error) === "EEXIST") return "a process that is just starting";
    throw error;
  }
  // A number below the top can be free again, because owners clear away older files: then the lock is not ours.
  if ((await highest(dir)) !== mine) {
    await fs.rm(path, { force: true });
    return "a process that is just starting";
  }
  for (const name of await fs.readdir(dir)) {
    const match = NAME.exec(name);
    if (match !== null && Number(match[1]) < mine) await fs.rm(join(dir, name), { force: true });
  }
  return mine;
}

/** `take` is the kernel's lock; tests leave it out to see the lock file by itself. */
export async function acquireLock(dir: string, timeoutMs: number, take = takeKernelLock): Promise<LedgerLock> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const kernel = take(join(dir, "lock"));
    const self = describeSelf(typeof kernel === "object");
    const taken = kernel === "held" ? await describeOwner(dir) : await tryTake(dir, self);
    if (typeof taken === "number") return holdLock(dir, taken, self, kernel);
    if (typeof kernel === "object") kernel.release();
    if (performance.now() >= deadline) {
      throw new LedgerLocked(
        `ledger ${dir} is in use by ${taken}; waited ${timeoutMs} ms (lockTimeoutMs). Stop that process, or give this one another directory`,
      );
    }
    await sleep(POLL_MS);
  }
}

async function describeOwner(dir: string): Promise<string> {
  const current = await readOwner(join(dir, `lock.${await highest(dir)}`));
  const owner = current?.owner;
  if (owner === undefined || owner.released === true) return "a process that is just starting or ending";
  return `process ${owner.pid} on ${owner.host}, since ${owner.since}`;
}

function holdLock(dir: string, number: number, self: Owner, kernel: KernelLock): LedgerLock {
  const path = join(dir, `lock.${number}`);
  let onLost: ((why: string) => void) | undefined;
  const beat = async (): Promise<void> => {
    try {
      if ((await highest(dir)) > number) {
        clearInterval(timer);
        onLost?.(`another process took over ledger ${dir}, because this one had not renewed it`);
        return;
      }
      const now = new Date();
      await fs.utimes(path, now, now);
    } catch {
      // A disk that cannot be touched now is reported by the next record that cannot be written.
    }
  };
  const timer = setInterval(() => void beat(), HEARTBEAT_MS);
  timer.unref();
  return {
    onLost(listener) {
      onLost = listener;
    },
    async release() {
      clearInterval(timer);
      try {
        await fs.writeFile(path, JSON.stringify({ ...self, released: true }), { flag: "r+" });
      } catch {
        // A disk that takes no writes may still take removals; otherwise the lock ends with the process.
        await fs.rm(path, { force: true }).catch(() => {});
      } finally {
        if (typeof kernel === "object") kernel.release();
      }
    },
  };
}
