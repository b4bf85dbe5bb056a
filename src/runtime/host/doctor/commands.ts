// The programs of the catalog: found, and able to start where they will run. Tried in the very sandbox of each command,
// so that a directory closed to its user or a missing interpreter is found here and not by an agent.

import { existsSync, statSync } from "node:fs";
import { delimiter, dirname, isAbsolute, join } from "node:path";
import {
  type Command,
  confinementOf,
  isWithin,
  missingProtections,
  openingMethod,
  type Policy,
  type Protections,
  reachInSandbox,
  type Sandbox,
} from "../../../host/index.js";
import type { Finding } from "../../../lib/finding.js";

export async function programs(policy: Policy, sandbox: Sandbox): Promise<Finding[]> {
  const broken: Finding[] = [];
  for (const command of policy.commands.values()) {
    const problem = await obstacleOf(policy, command, sandbox);
    if (problem === undefined) continue;
    // Its two halves: what is wrong, and what to do.
    const [detail = problem, remedy = "change the entry"] = problem.split("; ");
    broken.push({ check: `command ${command.id}`, ok: false, detail, remedy: `${remedy} (${command.origin})` });
  }
  const count = policy.commands.size - broken.length;
  const detail = policy.commands.size === 0 ? "none in the catalog" : `${count} of ${policy.commands.size} can start`;
  return [searchPath(), node(), { check: "commands", ok: true, detail }, ...broken];
}

/** Directories in which each command is tried, the writable roots among them. */
const MAX_DIRECTORIES = 8;

async function obstacleOf(policy: Policy, command: Command, sandbox: Sandbox): Promise<string | undefined> {
  // What the machine lacks altogether is a finding of its own.
  const tried: Command = command.sandbox === "required" ? { ...command, sandbox: "preferred" } : command;
  const zones = policy.writableRoots.map((zone) => zone.path).filter((path) => existsSync(path));
  const inRoots = zones.filter((path) => policy.readableRoots.some((root) => isWithin(path, root.path)));
  const directories = [policy.readableRoots[0]?.path, ...inRoots].slice(0, MAX_DIRECTORIES);
  for (const directory of command.cwdPolicy === "withinRoot" ? directories : [undefined]) {
    const problem = await reachInSandbox(policy, tried, sandbox, directory);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Where a bare name in the policy is looked for. */
function searchPath(): Finding {
  const check = "PATH";
  const directories = (process.env.PATH ?? "").split(delimiter).filter((directory) => directory !== "");
  const unsafe = directories.filter((directory) => !isAbsolute(directory) || isOpenToAll(directory));
  const name = process.platform === "win32" ? "portcullis.cmd" : "portcullis";
  const own = directories.map((directory) => join(directory, name)).find((path) => existsSync(path));
  const where = own ?? "not on it, so a client needs its whole path";
  if (unsafe.length === 0) {
    return {
      check,
      ok: true,
      detail: `${directories.length} directories, none of them open to others; portcullis: ${where}`,
    };
  }
  return {
    check,
    ok: true,
    detail: `${unsafe.join(", ")} can be filled by anyone and is not searched for programs`,
    hint: "take it out of PATH, or close it to others",
  };
}

function isOpenToAll(directory: string): boolean {
  const stats = statSync(directory, { throwIfNoEntry: false });
  return stats !== undefined && process.platform !== "win32" && (stats.mode & 0o002) !== 0;
}

/** Commands of a host that root started run as another user, to whom root's own directories are closed. */
function node(): Finding {
  const check = "Node's place";
  const closed = process.geteuid?.() === 0 ? closedDirectory(process.execPath) : undefined;
  if (closed === undefined) return { check, ok: true, detail: process.execPath };
  return {
    check,
    ok: true,
    detail: `${process.execPath} lies in ${closed}, which is closed to the user that commands run as`,
    hint: "commands that need Node (npm, scripts) have to list its directory under mounts; or install Node for everyone, below /usr",
  };
}

function closedDirectory(path: string): string | undefined {
  for (let directory = dirname(path); directory !== dirname(directory); directory = dirname(directory)) {
    if ((statSync(directory).mode & 0o001) === 0) return directory;
  }
  return undefined;
}

export async function protections(policy: Policy, sandbox: Sandbox): Promise<Finding[]> {
  const command = [...policy.commands.values()][0];
  if (command === undefined) return [paths(), { check: "sandbox", ok: true, detail: "no commands to hold" }];
  let found: Protections;
  try {
    found = await sandbox.probe(confinementOf(policy, command));
  } catch (error) {
    const detail = `cannot be started: ${(error as Error).message}`;
    return [paths(), { check: "sandbox", ok: false, detail, remedy: "see docs/platforms.md for what it needs" }];
  }
  return [
    paths(),
    required(policy, found),
    files(found),
    ...gaps(found),
    network(found, command.network),
    processes(found),
    limits(found),
  ];
}

function paths(): Finding {
  const check = "paths";
  if (process.platform !== "linux") return { check, ok: true, detail: "by the portable way (docs/platforms.md)" };
  return openingMethod() === "openat2"
    ? { check, ok: true, detail: "opened by openat2, without a race" }
    : { check, ok: true, detail: "opened and compared, without a race", hint: "a kernel from 5.6 does it in one step" };
}

function required(policy: Policy, found: Protections): Finding {
  const check = "sandbox";
  const closed = [...policy.commands.values()].some((each) => !each.network);
  const missing = missingProtections(found, !closed);
  if (missing.length === 0) return { check, ok: true, detail: `${policy.sandbox}, and this machine gives it` };
  const strict = [...policy.commands.values()].some((each) => each.sandbox === "required");
  const detail = `this machine lacks ${missing.join(" and ")}`;
  if (!strict) return { check, ok: true, detail, hint: "commands run without it, as sandbox: preferred says" };
  return { check, ok: false, detail: `${detail}; no command will run`, remedy: remedyFor(found) };
}

function remedyFor(found: Protections): string {
  if (process.platform !== "linux")
    return "set sandbox: preferred, knowing what docs/platforms.md says about this system";
  if (found.openMounts.length > 0)
    return "unmount it, name it in allowedRoots if it is meant, or allow user namespaces (docs/platforms.md)";
  if (found.files === "none") return "use a kernel with Landlock (5.13 or later), or install bubblewrap";
  if (found.processTree === "process-group") return "allow user namespaces, or delegate a cgroup to this user";
  return "use a kernel with seccomp, or set `network: true` for the commands that may have it";
}

function files(found: Protections): Finding {
  const words: Readonly<Record<Protections["files"], string>> = {
    "view+landlock": "a view of their own, and Landlock",
    view: "a view of their own",
    landlock: "Landlock",
    bubblewrap: "bubblewrap",
    none: "nothing",
  };
  const detail = `held by ${words[found.files]}`;
  const note = found.notes[0];
  return { check: "files of commands", ok: true, detail, ...(note === undefined ? {} : { hint: note }) };
}

/** What a better way of holding files would not leave open, or not take away. */
function gaps(found: Protections): Finding[] {
  if (found.gaps.length === 0) return [];
  const hint =
    found.files === "landlock"
      ? "a view of their own closes all of this: allow user namespaces, or start the host as root (docs/platforms.md)"
      : "outside a container, or in one that does not cover parts of /proc, there is more (docs/platforms.md)";
  return [{ check: "left open", ok: true, detail: found.gaps.join("; "), hint }];
}

function network(found: Protections, open: boolean): Finding {
  const detail = open ? "the first command may reach it" : `off by ${found.network}`;
  return { check: "network of commands", ok: true, detail };
}

function processes(found: Protections): Finding {
  const user = found.user === "same" ? "as your own user" : `as user ${found.user}`;
  const filter = found.seccomp ? "seccomp" : "no seccomp filter";
  return { check: "processes", ok: true, detail: `${user}, ended by ${found.processTree}, ${filter}` };
}

function limits(found: Protections): Finding {
  const check = "limits";
  if (!found.rlimits) {
    return {
      check,
      ok: true,
      detail: "time and output only",
      hint: "install util-linux, whose prlimit sets the others",
    };
  }
  const { cgroup } = found;
  if (cgroup.length === 0) {
    const hint = "a delegated cgroup (Delegate=yes in a systemd unit) limits all processes of a command together";
    return { check, ok: true, detail: "prlimit, for each process by itself", hint };
  }
  return { check, ok: true, detail: `prlimit, and cgroup v2 for ${cgroup.join(", ")}` };
}
