// Where neither cgroup nor namespace is to be had: every process of a server has a mark in its environment, which
// children inherit, also those that leave the group. A program that clears its environment escapes this.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const MARK = "PORTCULLIS_SERVER_MARK";

export function markedProcesses(mark: string): number[] {
  const wanted = `${MARK}=${mark}`;
  const found: number[] = [];
  let names: string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return found;
  }
  for (const name of names) {
    if (!/^[0-9]+$/.test(name) || Number(name) === process.pid) continue;
    try {
      if (readFileSync(`/proc/${name}/environ`, "latin1").split("\0").includes(wanted)) found.push(Number(name));
    } catch {
      // Gone between the two looks, or somebody else's.
    }
  }
  return found;
}

const MAX_ROUNDS = 100;
const ROUND_MS = 10;

/** False when something is left. */
export async function endMarked(mark: string): Promise<boolean> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const living = markedProcesses(mark);
    if (living.length === 0) return true;
    killMarked(living);
    await sleep(ROUND_MS);
  }
  return false;
}

export function killMarked(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // Gone already.
    }
  }
}
