// A cgroup (version 2) around one server and everything it starts: `cgroup.kill` ends all of it at once, whatever
// sessions or groups its processes have moved to. Needs no controller, only a folder that we may write to.

import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Where this process is in version 2, if that is mounted. */
export function ownFolder(): string | undefined {
  try {
    const mount = readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .find((line) => line.includes(" - cgroup2 "));
    const place = /^0::(.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
    const at = mount?.split(" ")[4];
    return at === undefined || place === undefined ? undefined : join(at, place);
  } catch {
    return undefined;
  }
}

let serial = 0;

export function makeFolder(parent: string): string | undefined {
  const folder = join(parent, `${prefix()}${process.pid}-${serial++}`);
  try {
    mkdirSync(folder);
  } catch {
    return undefined;
  }
  if (existsSync(join(folder, "cgroup.kill"))) return folder;
  rmdirSync(folder);
  return undefined;
}

export function membersOf(folder: string): number[] {
  try {
    return readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

export function killFolder(folder: string): void {
  try {
    writeFileSync(join(folder, "cgroup.kill"), "1");
  } catch {
    // Removed already.
  }
}

const REMOVE_TRIES = 250;
const REMOVE_WAIT_MS = 4;

/** What was killed takes a moment to leave. A server may have made folders of its own inside. */
export async function removeFolder(folder: string): Promise<boolean> {
  for (let tries = 0; tries < REMOVE_TRIES; tries++) {
    if (removeTree(folder, 0)) return true;
    await sleep(REMOVE_WAIT_MS);
  }
  return false;
}

const MAX_DEPTH = 8;

function removeTree(folder: string, depth: number): boolean {
  if (!existsSync(folder)) return true;
  try {
    if (depth < MAX_DEPTH) {
      for (const entry of readdirSync(folder, { withFileTypes: true })) {
        if (entry.isDirectory()) removeTree(join(folder, entry.name), depth + 1);
      }
    }
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

/** Left by a gateway that was killed. Only our own process ids mean anything to us, hence the namespace in the name. */
export function sweepStale(parent: string): void {
  for (const name of readdirSync(parent)) {
    if (!name.startsWith(prefix())) continue;
    const pid = /^(\d+)-\d+$/.exec(name.slice(prefix().length))?.[1];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    killFolder(join(parent, name));
    void removeFolder(join(parent, name));
  }
}

function prefix(): string {
  const namespace = /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  return `portcullis-server-${namespace}-`;
}
