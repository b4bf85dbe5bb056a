// Small system programs that set up a process and then become the command: limits that belong to a process (prlimit),
// death with the parent (setpriv), a user namespace for the supervisor (unshare), bubblewrap. Tried once, by running them.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { findExecutable, type ProcessLimits, searchDirectories } from "../policy/index.js";

const run = promisify(execFile);
const PROBE_TIMEOUT_MS = 5000;

export interface Launchers {
  readonly prlimit: string | undefined;
  readonly setpriv: string | undefined;
  /** With a user namespace; for root, without one. */
  readonly unshare: string | undefined;
  readonly bubblewrap: string | undefined;
  /** It can mount /proc. */
  readonly bubblewrapProc: boolean;
}

let probed: Promise<Launchers> | undefined;

export function launchers(): Promise<Launchers> {
  probed ??= probe();
  return probed;
}

async function probe(): Promise<Launchers> {
  if (process.platform !== "linux")
    return { prlimit: undefined, setpriv: undefined, unshare: undefined, bubblewrap: undefined, bubblewrapProc: false };
  const [prlimit, setpriv, unshare, bubblewrap, withProc] = await Promise.all([
    works("prlimit", ["--core=0", "--"]),
    works("setpriv", ["--pdeathsig", "KILL", "--"]),
    works("unshare", ownNamespaces()),
    works("bwrap", [...BUBBLEWRAP, "--"]),
    works("bwrap", [...BUBBLEWRAP, "--proc", "/proc", "--"]),
  ]);
  return { prlimit, setpriv, unshare, bubblewrap, bubblewrapProc: withProc !== undefined };
}

const BUBBLEWRAP = ["--ro-bind", "/", "/", "--as-pid-1", "--unshare-pid", "--unshare-net", "--die-with-parent"];

/** What `unshare` is told to start a supervisor. */
export function ownNamespaces(): readonly string[] {
  return process.geteuid?.() === 0 ? PID_NAMESPACE : ["--user", "--map-current-user", "--keep-caps", ...PID_NAMESPACE];
}

/**
 * The supervisor is its first process, and /proc shows nothing else. An ordinary user gets it together with a user namespace,
 * which has every right over nothing but what was theirs before: only there can the supervisor open and leave one for each
 * command.
 */
const PID_NAMESPACE = ["--pid", "--fork", "--kill-child=KILL", "--"];

async function works(name: string, args: readonly string[]): Promise<string | undefined> {
  const folders = searchDirectories("", "linux");
  const program = findExecutable(name, folders);
  const nothing = findExecutable("true", folders);
  if ("error" in program || "error" in nothing) return undefined;
  try {
    await run(program.path, [...args, nothing.path], { timeout: PROBE_TIMEOUT_MS, env: {} });
    return program.path;
  } catch {
    return undefined;
  }
}

export interface LaunchLimits extends ProcessLimits {
  readonly maxFileBytes: number;
  readonly cpuSeconds: number;
  readonly limitAddressSpace: boolean;
  /** Undefined: processes are limited by a cgroup, or not at all. */
  readonly processes: number | undefined;
}

/** What stands before the program on the command line. */
export function launchPrefix(tools: Launchers, limits: LaunchLimits): string[] {
  const death = tools.setpriv === undefined ? [] : [tools.setpriv, "--pdeathsig", "KILL", "--"];
  if (tools.prlimit === undefined) return death;
  const { maxMemoryBytes, maxOpenFiles, maxFileBytes, cpuSeconds, limitAddressSpace, processes } = limits;
  return [
    ...death,
    tools.prlimit,
    "--core=0",
    `--data=${maxMemoryBytes}`,
    ...(limitAddressSpace ? [`--as=${maxMemoryBytes}`] : []),
    `--nofile=${maxOpenFiles}`,
    `--fsize=${maxFileBytes}`,
    `--cpu=${cpuSeconds}`,
    "--memlock=65536",
    "--msgqueue=0",
    ...(processes === undefined ? [] : [`--nproc=${processes}`]),
    "--",
  ];
}
