// Finding and ending what a command left behind, where there is no namespace or cgroup to do it: the supervisor adopts
// orphans, so every descendant is below it in the process table.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const MAX_ROUNDS = 200;
const ROUND_MS = 5;

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
  const rows: ProcessRow[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    try {
      const row = parseStat(readFileSync(`/proc/${name}/stat`, "utf8"));
      if (row !== undefined) rows.push(row);
    } catch {
      // Gone between the two looks.
    }
  }
  return rows;
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

/** Stops first, so that nothing forks while the rest is being looked for. True when nothing is left. */
export async function endDescendants(ancestor: number): Promise<boolean> {
  const stopped = new Set<number>();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const living = livingDescendants(ancestor);
    if (living.length === 0) return true;
    const fresh = living.filter((pid) => !stopped.has(pid));
    for (const pid of fresh) {
      signal(pid, "SIGSTOP");
      stopped.add(pid);
    }
    if (fresh.length > 0) continue;
    for (const pid of living) signal(pid, "SIGKILL");
    stopped.clear();
    await sleep(ROUND_MS);
  }
  return livingDescendants(ancestor).length === 0;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // Gone already.
  }
}

/** Processes and threads of one user; what RLIMIT_NPROC counts. */
export function tasksOf(uid: number): number {
  let tasks = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    try {
      const status = readFileSync(`/proc/${name}/status`, "utf8");
      const owner = /^Uid:\s+([0-9]+)/m.exec(status)?.[1];
      if (owner === String(uid)) tasks += Number(/^Threads:\s+([0-9]+)/m.exec(status)?.[1] ?? 1);
    } catch {
      // Gone between the two looks.
    }
  }
  return tasks;
}
