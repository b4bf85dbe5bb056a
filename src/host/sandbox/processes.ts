// Finding and ending processes by /proc, where neither a namespace nor a cgroup does it: descendants of a supervisor that
// adopts orphans, and processes that carry a mark in their environment.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const MAX_ROUNDS = 200;
const ROUND_MS = 5;

/** `signalProcess` sends a signal; a negative target is a process group. A process that has ended is not an error. */
export function signalProcess(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // Ended already.
  }
}

/** The content of one file of every process. */
function* procFiles(file: "stat" | "status" | "environ"): Generator<[pid: number, text: string]> {
  for (const name of readdirSync("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    let text: string;
    try {
      text = readFileSync(`/proc/${name}/${file}`, "latin1");
    } catch {
      continue; // Ended meanwhile, or of another user.
    }
    yield [Number(name), text];
  }
}

interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
  readonly isZombie: boolean;
}

/** Fields of /proc/<pid>/stat; the name in parentheses may itself hold parentheses (proc(5)). */
export function parseStat(text: string): ProcessRow | undefined {
  const close = text.lastIndexOf(")");
  const pid = Number.parseInt(text, 10);
  const [state, parent] = text.slice(close + 2).split(" ");
  if (close < 0 || !Number.isInteger(pid) || state === undefined || parent === undefined) return undefined;
  return { pid, parent: Number(parent), isZombie: state === "Z" || state === "X" };
}

function processTable(): ProcessRow[] {
  return [...procFiles("stat")].flatMap(([, text]) => parseStat(text) ?? []);
}

export function livingDescendants(ancestor: number, table: readonly ProcessRow[] = processTable()): number[] {
  const children = new Map<number, ProcessRow[]>();
  for (const row of table) children.set(row.parent, [...(children.get(row.parent) ?? []), row]);
  const found: number[] = [];
  const pending = [ancestor];
  for (let pid = pending.pop(); pid !== undefined; pid = pending.pop()) {
    for (const child of children.get(pid) ?? []) {
      pending.push(child.pid);
      if (!child.isZombie) found.push(child.pid);
    }
  }
  return found;
}

/** Stops first, so that nothing forks while the rest is being searched. True when nothing is left. */
export async function endDescendants(ancestor: number): Promise<boolean> {
  const stopped = new Set<number>();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const living = livingDescendants(ancestor);
    if (living.length === 0) return true;
    const fresh = living.filter((pid) => !stopped.has(pid));
    for (const pid of fresh) {
      signalProcess(pid, "SIGSTOP");
      stopped.add(pid);
    }
    if (fresh.length > 0) continue;
    for (const pid of living) signalProcess(pid, "SIGKILL");
    stopped.clear();
    await sleep(ROUND_MS);
  }
  return livingDescendants(ancestor).length === 0;
}

/** Processes and threads of one user, which is what RLIMIT_NPROC counts. */
export function tasksOf(uid: number): number {
  let tasks = 0;
  for (const [, status] of procFiles("status")) {
    const owner = /^Uid:\s+([0-9]+)/m.exec(status)?.[1];
    if (owner === String(uid)) tasks += Number(/^Threads:\s+([0-9]+)/m.exec(status)?.[1] ?? 1);
  }
  return tasks;
}

/** Other processes with this variable in their environment. */
export function processesWith(variable: string): number[] {
  const found: number[] = [];
  if (process.platform !== "linux") return found;
  for (const [pid, environ] of procFiles("environ")) {
    if (pid !== process.pid && environ.split("\0").includes(variable)) found.push(pid);
  }
  return found;
}

/** False when a process is left. */
export async function endProcessesWith(variable: string): Promise<boolean> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const living = processesWith(variable);
    if (living.length === 0) return true;
    for (const pid of living) signalProcess(pid, "SIGKILL");
    await sleep(ROUND_MS);
  }
  return false;
}
