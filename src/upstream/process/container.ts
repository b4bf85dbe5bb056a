// What holds a server together with everything it starts, so that all of it can be ended: a cgroup, a PID namespace,
// or, where neither can be had, its process group and a mark in the environment.

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import type { Containment } from "../types.js";
import { killFolder, makeFolder, membersOf, ownFolder, removeFolder, sweepStale } from "./cgroup.js";
import { endMarked, killMarked, MARK, markedProcesses } from "./marked.js";

export interface ProcessContainer {
  readonly kind: Containment;
  /** What stands before the command. */
  readonly prefix: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Ends everything inside, at once. `pid` is the process that was started. */
  kill(pid: number): void;
  /** After `kill`: waits until nothing is left and cleans up. */
  remove(): Promise<void>;
}

interface Ways {
  readonly cgroupParent: string | undefined;
  readonly namespace: readonly string[] | undefined;
  /** Ends the server when we die without a chance to do it ourselves. */
  readonly dieWithUs: readonly string[];
}

const run = promisify(execFile);
const PROBE_MS = 5_000;
/** Joins the cgroup before it becomes the server: nothing is ever outside. */
const JOIN = 'echo 0 > "$0/cgroup.procs" && exec "$@"';

let found: Promise<Ways> | undefined;

/** `namespaces` is what gives a sandboxed server its own PID namespace; it then stands in every prefix. */
export async function makeContainer(
  wanted?: Containment,
  namespaces: readonly string[] = [],
): Promise<ProcessContainer> {
  found ??= look();
  const ways = await found;
  const kinds: readonly Containment[] = wanted === undefined ? ["cgroup", "pid-namespace", "process-group"] : [wanted];
  for (const kind of kinds) {
    const container = make(kind, namespaces.length === 0 ? ways : { ...ways, namespace: namespaces }, namespaces);
    if (container !== undefined) return container;
  }
  throw new Error(`containment \`${wanted}\` cannot be had on this machine; leave it out to get the best there is`);
}

function make(kind: Containment, ways: Ways, inside: readonly string[]): ProcessContainer | undefined {
  switch (kind) {
    case "cgroup":
      return ways.cgroupParent === undefined ? undefined : cgroupPen(ways.cgroupParent, ways.dieWithUs, inside);
    case "pid-namespace":
      return ways.namespace === undefined ? undefined : namespacePen([...ways.dieWithUs, ...ways.namespace]);
    case "process-group":
      return groupPen([...ways.dieWithUs, ...inside]);
  }
}

function cgroupPen(
  parent: string,
  dieWithUs: readonly string[],
  inside: readonly string[],
): ProcessContainer | undefined {
  const folder = makeFolder(parent);
  if (folder === undefined) return undefined;
  return {
    kind: "cgroup",
    prefix: [...dieWithUs, "/bin/sh", "-c", JOIN, folder, ...inside],
    env: {},
    kill(pid) {
      killFolder(folder);
      // It may not have joined yet.
      signal(-pid, "SIGKILL");
    },
    async remove() {
      if (membersOf(folder).length > 0) killFolder(folder);
      if (!(await removeFolder(folder))) throw new Error(`processes in ${folder} cannot be ended`);
    },
  };
}

function namespacePen(prefix: readonly string[]): ProcessContainer {
  return {
    kind: "pid-namespace",
    prefix,
    env: {},
    kill(pid) {
      // The first process inside takes the whole namespace with it, and the one outside sees that through.
      const inside = childrenOf(pid);
      if (inside.length > 0) for (const child of inside) signal(child, "SIGKILL");
      else signal(-pid, "SIGKILL");
    },
    remove: async () => {},
  };
}

function groupPen(dieWithUs: readonly string[]): ProcessContainer {
  const mark = randomUUID();
  return {
    kind: "process-group",
    prefix: process.platform === "linux" ? dieWithUs : [],
    env: { [MARK]: mark },
    kill(pid) {
      if (process.platform === "win32") {
        execFile("taskkill", ["/PID", String(pid), "/T", "/F"], () => {});
        return;
      }
      signal(-pid, "SIGKILL");
      killMarked(markedProcesses(mark));
    },
    async remove() {
      if (!(await endMarked(mark))) throw new Error("processes of a server cannot be ended");
    },
  };
}

async function look(): Promise<Ways> {
  if (process.platform !== "linux") return { cgroupParent: undefined, namespace: undefined, dieWithUs: [] };
  const own = process.getuid?.() === 0 ? [] : ["--user", "--map-current-user"];
  const namespace = ["unshare", ...own, "--pid", "--fork", "--kill-child=KILL", "--"];
  const dieWithUs = ["setpriv", "--pdeathsig", "KILL", "--"];
  const [unshare, setpriv, cgroupParent] = await Promise.all([works(namespace), works(dieWithUs), cgroupThatWorks()]);
  return {
    cgroupParent,
    namespace: unshare ? namespace : undefined,
    dieWithUs: setpriv ? dieWithUs : [],
  };
}

async function cgroupThatWorks(): Promise<string | undefined> {
  const parent = ownFolder();
  if (parent === undefined) return undefined;
  const folder = makeFolder(parent);
  if (folder === undefined) return undefined;
  sweepStale(parent);
  const joins = await works(["/bin/sh", "-c", JOIN, folder]);
  await removeFolder(folder);
  return joins ? parent : undefined;
}

async function works([program = "", ...args]: readonly string[]): Promise<boolean> {
  try {
    await run(program, [...args, "true"], { timeout: PROBE_MS });
    return true;
  } catch {
    return false;
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** A negative number is a group. */
export function signal(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // Gone already.
  }
}
