// Small system programs that set up a process and then become the command: limits that belong to a process (prlimit),
// death with the parent (setpriv), a user namespace for the supervisor (unshare), bubblewrap. Tried once, by running them.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { findExecutable, searchDirectories } from "../policy/executable.js";
import type { ProcessLimits } from "../policy/policy.js";

const run = promisify(execFile);
const PROBE_TIMEOUT_MS = 5000;

export interface Launchers {
  readonly prlimit: string | undefined;
  /** A shell that sets fewer limits, where there is no prlimit: macOS. */
  readonly shell?: string | undefined;
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
  const shell = process.platform === "darwin" ? "/bin/sh" : undefined;
  if (process.platform !== "linux")
    return {
      shell,
      prlimit: undefined,
      setpriv: undefined,
      unshare: undefined,
      bubblewrap: undefined,
      bubblewrapProc: false,
    };
  const [prlimit, setpriv, unshare, bubblewrap, withProc] = await Promise.all([
    works("prlimit", ["--core=0", "--"]),
    works("setpriv", ["--pdeathsig", "KILL", "--"]),
    works("unshare", namespaceFlags(true)),
    works("bwrap", [...BUBBLEWRAP, "--"]),
    works("bwrap", [...BUBBLEWRAP, "--proc", "/proc", "--"]),
  ]);
  return { prlimit, setpriv, unshare, bubblewrap, bubblewrapProc: withProc !== undefined };
}

const BUBBLEWRAP = ["--ro-bind", "/", "/", "--as-pid-1", "--unshare-pid", "--unshare-net", "--die-with-parent"];

/**
 * What `unshare` is told. With `keepCaps` the process keeps the rights over its user namespace, as a supervisor and a
 * launcher need them; both give them up.
 */
export function namespaceFlags(keepCaps: boolean): readonly string[] {
  if (process.geteuid?.() === 0) return PID_NAMESPACE;
  return ["--user", "--map-current-user", ...(keepCaps ? ["--keep-caps"] : []), ...PID_NAMESPACE];
}

/**
 * The supervisor is its first process, and /proc shows nothing else. An ordinary user gets it together with a user namespace,
 * which has every right over nothing but what was theirs before: only there can the supervisor open and leave one for each
 * command.
 */
const PID_NAMESPACE = ["--pid", "--fork", "--kill-child=KILL", "--"];

async function works(name: string, args: readonly string[]): Promise<string | undefined> {
  const directories = searchDirectories(process.env.PATH, "linux");
  const program = findExecutable(name, directories);
  const nothing = findExecutable("true", directories);
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
  if (tools.prlimit === undefined) return [...death, ...shellPrefix(tools.shell, limits)];
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

/** `-f` counts 512 bytes. The limit on processes is `-u` in bash, `-p` in dash. A limit that cannot be set ends it. */
const SHELL_LIMITS = `ulimit -c 0 && ulimit -t "$1" && ulimit -n "$2" && ulimit -f "$3" || exit 126
[ -z "$4" ] || ulimit -u "$4" 2>/dev/null || ulimit -p "$4" || exit 126
shift 4 && exec "$@"`;

/** Soft and hard limits of the process that becomes the command. macOS knows none on memory that holds. */
export function shellPrefix(shell: string | undefined, limits: LaunchLimits): string[] {
  if (shell === undefined) return [];
  const { cpuSeconds, maxOpenFiles, maxFileBytes, processes } = limits;
  const blocks = Math.floor(maxFileBytes / 512);
  return [shell, "-c", SHELL_LIMITS, "limits", ...[cpuSeconds, maxOpenFiles, blocks, processes ?? ""].map(String)];
}
