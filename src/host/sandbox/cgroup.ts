// A cgroup (version 2) around a process and everything it starts: limits on memory, processor and number of processes
// where the controllers are ours to use, and `cgroup.kill`, which ends all of it at once, whatever sessions or groups its
// processes have moved to, and needs no controller.

import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface CgroupLimits {
  readonly memoryBytes: number;
  readonly processes: number;
  /** Whole processors, as a share of time. */
  readonly processors: number;
}

/** A supervisor's own needs come on top of what a command may use. */
const SUPERVISOR_MEMORY_BYTES = 256_000_000;
export const SUPERVISOR_THREADS = 32;
const OF_SUPERVISOR = { memoryBytes: SUPERVISOR_MEMORY_BYTES, threads: SUPERVISOR_THREADS };
const CPU_PERIOD_US = 100_000;
const CONTROLLERS = ["memory", "pids", "cpu"] as const;

export interface Cgroup {
  readonly directory: string;
  /** Controllers in force. */
  readonly controllers: readonly string[];
  add(pid: number): boolean;
  /** `beside` is what processes of our own need in it besides; those of a supervisor unless given. */
  setLimits(limits: CgroupLimits, beside?: typeof OF_SUPERVISOR): void;
  members(): number[];
  kill(): void;
  /** False when processes are left. Killed processes take a moment to leave. */
  remove(): Promise<boolean>;
}

/** Where version 2 is mounted and this process's place in it. Undefined: version 1 only, or no cgroups. */
export function ownCgroupDirectory(
  mountInfo = read("/proc/self/mountinfo"),
  cgroupFile = read("/proc/self/cgroup"),
): string | undefined {
  const line = mountInfo.split("\n").find((l) => l.includes(" - cgroup2 "));
  const mountedAt = line?.split(" ")[4];
  const path = /^0::(.*)$/m.exec(cgroupFile)?.[1];
  return mountedAt === undefined || path === undefined ? undefined : join(mountedAt, path);
}

let serial = 0;
let isSwept = false;

/** `makeCgroup` returns a cgroup that can limit or, where `kill` is asked for, end its processes; undefined without. */
export function makeCgroup(
  uses: { readonly limits: boolean; readonly kill: boolean },
  parent = ownCgroupDirectory(),
): Cgroup | undefined {
  if (parent === undefined) return undefined;
  if (!isSwept) removeStale(parent);
  isSwept = true;
  const directory = join(parent, `${namePrefix()}${process.pid}-${serial++}`);
  if (!succeeds(() => mkdirSync(directory))) return undefined;
  if (uses.limits) enableControllers(parent);
  const available = uses.limits ? read(join(directory, "cgroup.controllers")).split(/\s+/) : [];
  const controllers = CONTROLLERS.filter((name) => available.includes(name));
  if (controllers.length === 0 && !(uses.kill && existsSync(join(directory, "cgroup.kill")))) {
    succeeds(() => rmdirSync(directory));
    return undefined;
  }
  return {
    directory,
    controllers,
    add: (pid) => succeeds(() => writeFileSync(join(directory, "cgroup.procs"), String(pid))),
    setLimits: (limits, beside) => {
      for (const [file, value] of limitFiles(controllers, limits, beside))
        succeeds(() => writeFileSync(join(directory, file), value));
    },
    members: () => read(join(directory, "cgroup.procs")).split("\n").filter(Boolean).map(Number),
    kill: () => kill(directory),
    remove: () => remove(directory),
  };
}

function kill(directory: string): void {
  succeeds(() => writeFileSync(join(directory, "cgroup.kill"), "1"));
}

const REMOVE_TRIES = 250;
const REMOVE_WAIT_MS = 4;

async function remove(directory: string): Promise<boolean> {
  for (let tries = 0; tries < REMOVE_TRIES; tries++) {
    if (removeTree(directory, 0)) return true;
    await sleep(REMOVE_WAIT_MS);
  }
  return false;
}

const MAX_DEPTH = 8;

/** A server may have made cgroups of its own inside. */
function removeTree(directory: string, depth: number): boolean {
  if (!existsSync(directory)) return true;
  return succeeds(() => {
    if (depth < MAX_DEPTH) {
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        if (entry.isDirectory()) removeTree(join(directory, entry.name), depth + 1);
      }
    }
    rmdirSync(directory);
  });
}

/** Allowed at the root, and where the parent itself has no process; the kernel answers EBUSY otherwise. */
function enableControllers(parent: string): void {
  const available = read(join(parent, "cgroup.controllers")).split(/\s+/);
  for (const name of CONTROLLERS) {
    if (available.includes(name)) succeeds(() => writeFileSync(join(parent, "cgroup.subtree_control"), `+${name}`));
  }
}

export function limitFiles(
  controllers: readonly string[],
  limits: CgroupLimits,
  beside = OF_SUPERVISOR,
): [file: string, value: string][] {
  const files: [string, string][] = [];
  if (controllers.includes("memory")) {
    files.push(["memory.max", String(limits.memoryBytes + beside.memoryBytes)], ["memory.swap.max", "0"]);
  }
  if (controllers.includes("pids")) files.push(["pids.max", String(limits.processes + beside.threads)]);
  if (controllers.includes("cpu")) files.push(["cpu.max", `${limits.processors * CPU_PERIOD_US} ${CPU_PERIOD_US}`]);
  return files;
}

/**
 * Ends and removes what a process left that was killed. Process ids mean something only in their own namespace, hence the
 * namespace in the name.
 */
function removeStale(parent: string): void {
  succeeds(() => {
    for (const name of readdirSync(parent)) {
      if (!name.startsWith(namePrefix())) continue;
      const pid = /^(\d+)-\d+$/.exec(name.slice(namePrefix().length))?.[1];
      if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
      kill(join(parent, name));
      void remove(join(parent, name));
    }
  });
}

function namePrefix(): string {
  const namespace = /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  return `portcullis-${namespace}-`;
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

function succeeds(action: () => void): boolean {
  try {
    action();
    return true;
  } catch {
    return false;
  }
}
