// What holds a server together with everything it starts, so that all of it can be ended: a cgroup, a PID namespace,
// or, where neither is available, its process group and a mark in the environment, which children inherit, also those
// that leave the group. A program that clears its environment escapes the mark.

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { type Cgroup, type CgroupLimits, makeCgroup, ownCgroupDirectory } from "./cgroup.js";
import { launchers, namespaceFlags } from "./launchers.js";
import { endProcessesWith, processesWith, signalProcess } from "./processes.js";

export type Containment = "cgroup" | "pid-namespace" | "process-group";

export interface ProcessContainer {
  readonly kind: Containment;
  /** What stands before the command. */
  readonly prefix: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Controllers that hold all processes together to their limits. */
  readonly limits: readonly string[];
  /** Ends everything inside, at once. `pid` is the process that was started. */
  kill(pid: number): void;
  /** After `kill`: waits until nothing is left and cleans up. */
  remove(): Promise<void>;
}

const run = promisify(execFile);
const PROBE_MS = 5_000;
/** Joins the cgroup before it becomes the server: nothing is ever outside. */
const JOIN = 'echo 0 > "$0/cgroup.procs" && exec "$@"';
const MARK = "PORTCULLIS_SERVER_MARK";

/** `namespaces` is what gives a sandboxed server its own PID namespace; it then stands in every prefix. */
export async function makeContainer(
  wanted?: Containment,
  namespaces: readonly string[] = [],
  limits?: CgroupLimits,
): Promise<ProcessContainer> {
  const { setpriv, unshare } = await launchers();
  // Ends the server when this process ends without a chance to do it.
  const dieWithParent = setpriv === undefined ? [] : [setpriv, "--pdeathsig", "KILL", "--"];
  const own = unshare === undefined ? [] : [unshare, ...namespaceFlags(false)];
  const kinds: readonly Containment[] = wanted === undefined ? ["cgroup", "pid-namespace", "process-group"] : [wanted];
  for (const kind of kinds) {
    if (kind === "process-group") return groupContainer([...dieWithParent, ...namespaces]);
    const namespace = namespaces.length > 0 ? namespaces : own;
    if (kind === "pid-namespace" && namespace.length > 0) return namespaceContainer([...dieWithParent, ...namespace]);
    const cgroup =
      kind === "cgroup" && (await canJoin()) ? makeCgroup({ ...KILL_ONLY, limits: limits !== undefined }) : undefined;
    if (cgroup !== undefined && limits !== undefined) cgroup.setLimits(limits, NOTHING_BESIDE);
    if (cgroup !== undefined) return cgroupContainer(cgroup, dieWithParent, namespaces);
  }
  throw new Error(`containment \`${wanted}\` is not available on this machine; leave it out to get the best there is`);
}

function cgroupContainer(
  cgroup: Cgroup,
  dieWithParent: readonly string[],
  inside: readonly string[],
): ProcessContainer {
  return {
    kind: "cgroup",
    prefix: [...dieWithParent, "/bin/sh", "-c", JOIN, cgroup.directory, ...inside],
    env: {},
    limits: cgroup.controllers,
    kill(pid) {
      cgroup.kill();
      // It may not have joined yet.
      signalProcess(-pid, "SIGKILL");
    },
    async remove() {
      if (cgroup.members().length > 0) cgroup.kill();
      if (!(await cgroup.remove())) throw new Error(`processes in ${cgroup.directory} cannot be ended`);
    },
  };
}

function namespaceContainer(prefix: readonly string[]): ProcessContainer {
  return {
    kind: "pid-namespace",
    prefix,
    env: {},
    limits: [],
    kill(pid) {
      // The first process inside takes the whole namespace with it, and the one outside waits for that.
      const inside = childrenOf(pid);
      for (const target of inside.length > 0 ? inside : [-pid]) signalProcess(target, "SIGKILL");
    },
    remove: async () => {},
  };
}

function groupContainer(prefix: readonly string[]): ProcessContainer {
  const mark = randomUUID();
  const variable = `${MARK}=${mark}`;
  return {
    kind: "process-group",
    prefix,
    env: { [MARK]: mark },
    limits: [],
    kill(pid) {
      if (process.platform === "win32") {
        execFile("taskkill", ["/PID", String(pid), "/T", "/F"], () => {});
        return;
      }
      for (const target of [-pid, ...processesWith(variable)]) signalProcess(target, "SIGKILL");
    },
    async remove() {
      if (!(await endProcessesWith(variable))) throw new Error("processes of a server cannot be ended");
    },
  };
}

const NOTHING_BESIDE = { memoryBytes: 0, threads: 0 };
const KILL_ONLY = { limits: false, kill: true };
let joinable: Promise<boolean> | undefined;

/** Whether a process can join a cgroup of ours; found out once, by doing it. */
function canJoin(): Promise<boolean> {
  joinable ??= probe();
  return joinable;
}

async function probe(): Promise<boolean> {
  if (process.platform !== "linux" || ownCgroupDirectory() === undefined) return false;
  const cgroup = makeCgroup(KILL_ONLY);
  if (cgroup === undefined) return false;
  try {
    await run("/bin/sh", ["-c", JOIN, cgroup.directory, "true"], { timeout: PROBE_MS });
    return true;
  } catch {
    return false;
  } finally {
    await cgroup.remove();
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}
