// A cgroup (version 2) around one supervisor and what it runs: limits on memory, processor and number of processes where the
// controllers are ours to use, and `cgroup.kill`, which ends all of it at once and needs no controller.

import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface CgroupLimits {
  readonly memoryBytes: number;
  readonly processes: number;
  /** Whole processors, as a share of time. */
  readonly processors: number;
}

/** A supervisor's own needs come on top of what a command may use. */
const WARDEN_MEMORY_BYTES = 256_000_000;
const WARDEN_THREADS = 32;
const CPU_PERIOD_US = 100_000;
const CONTROLLERS = ["memory", "pids", "cpu"] as const;

export interface Cgroup {
  /** Controllers in force. */
  readonly controllers: readonly string[];
  add(pid: number): boolean;
  setLimits(limits: CgroupLimits): void;
  members(): number[];
  kill(): void;
  /** Processes that were killed take a moment to leave. */
  remove(): Promise<void>;
}

/** Where version 2 is mounted and this process's place in it. Undefined: version 1 only, or no cgroups. */
export function ownCgroupDirectory(mountInfo: string, cgroupFile: string): string | undefined {
  const line = mountInfo.split("\n").find((l) => l.includes(" - cgroup2 "));
  const mountedAt = line?.split(" ")[4];
  const path = /^0::(.*)$/m.exec(cgroupFile)?.[1];
  return mountedAt === undefined || path === undefined ? undefined : join(mountedAt, path);
}

let serial = 0;

/** Without controllers a cgroup is only good for ending everything in it, which `needsKill` asks for. */
export function makeCgroup(needsKill: boolean, parent = ownFolder()): Cgroup | undefined {
  if (parent === undefined) return undefined;
  const folder = join(parent, `portcullis-${process.pid}-${serial++}`);
  try {
    removeStale(parent);
    mkdirSync(folder);
  } catch {
    return undefined;
  }
  enableControllers(parent);
  const controllers = CONTROLLERS.filter((name) =>
    read(join(folder, "cgroup.controllers")).split(/\s+/).includes(name),
  );
  if (controllers.length === 0 && !(needsKill && existsSync(join(folder, "cgroup.kill")))) {
    quietly(() => rmdirSync(folder));
    return undefined;
  }
  return {
    controllers,
    add: (pid) => quietly(() => writeFileSync(join(folder, "cgroup.procs"), String(pid))),
    setLimits: (limits) => writeLimits(folder, controllers, limits),
    members: () => read(join(folder, "cgroup.procs")).split("\n").filter(Boolean).map(Number),
    kill: () => quietly(() => writeFileSync(join(folder, "cgroup.kill"), "1")),
    remove: () => removeSoon(folder),
  };
}

const REMOVE_TRIES = 100;
const REMOVE_WAIT_MS = 20;

async function removeSoon(folder: string): Promise<void> {
  for (let tries = 0; tries < REMOVE_TRIES && existsSync(folder); tries++) {
    if (quietly(() => rmdirSync(folder))) return;
    await sleep(REMOVE_WAIT_MS, undefined, { ref: false });
  }
}

function ownFolder(): string | undefined {
  try {
    return ownCgroupDirectory(readFileSync("/proc/self/mountinfo", "utf8"), readFileSync("/proc/self/cgroup", "utf8"));
  } catch {
    return undefined;
  }
}

/** Allowed at the root, and wherever no process sits in the parent itself; elsewhere the kernel says EBUSY. */
function enableControllers(parent: string): void {
  const available = read(join(parent, "cgroup.controllers")).split(/\s+/);
  for (const name of CONTROLLERS) {
    if (available.includes(name)) quietly(() => writeFileSync(join(parent, "cgroup.subtree_control"), `+${name}`));
  }
}

function writeLimits(folder: string, controllers: readonly string[], limits: CgroupLimits): void {
  for (const [file, value] of limitFiles(controllers, limits)) quietly(() => writeFileSync(join(folder, file), value));
}

export function limitFiles(controllers: readonly string[], limits: CgroupLimits): [file: string, value: string][] {
  const files: [string, string][] = [];
  if (controllers.includes("memory")) {
    files.push(["memory.max", String(limits.memoryBytes + WARDEN_MEMORY_BYTES)], ["memory.swap.max", "0"]);
  }
  if (controllers.includes("pids")) files.push(["pids.max", String(limits.processes + WARDEN_THREADS)]);
  if (controllers.includes("cpu")) files.push(["cpu.max", `${limits.processors * CPU_PERIOD_US} ${CPU_PERIOD_US}`]);
  return files;
}

/** Left by a host that was killed. */
function removeStale(parent: string): void {
  for (const name of readdirSync(parent)) {
    const pid = /^portcullis-([0-9]+)-[0-9]+$/.exec(name)?.[1];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) quietly(() => rmdirSync(join(parent, name)));
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

function quietly(action: () => void): boolean {
  try {
    action();
    return true;
  } catch {
    return false;
  }
}
