// The programs of the catalog: found, and able to start where they will run. Tried in the very sandbox of each command,
// so that a folder closed to its user or a missing interpreter is found here and not by an agent.

import { existsSync, statSync } from "node:fs";
import { delimiter, dirname, isAbsolute, join } from "node:path";
import { type Command, isWithin, type Policy, reachInSandbox, type Sandbox } from "../../../host/index.js";
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

/** Folders in which each command is tried, the write zones among them. */
const MAX_FOLDERS = 8;

async function obstacleOf(policy: Policy, command: Command, sandbox: Sandbox): Promise<string | undefined> {
  // What the machine lacks altogether is a finding of its own.
  const tried: Command = command.sandbox === "required" ? { ...command, sandbox: "preferred" } : command;
  const zones = policy.zones.map((zone) => zone.path).filter((path) => existsSync(path));
  const inRoots = zones.filter((path) => policy.roots.some((root) => isWithin(path, root.path)));
  const folders = [policy.roots[0]?.path, ...inRoots].slice(0, MAX_FOLDERS);
  for (const folder of command.cwdPolicy === "withinRoot" ? folders : [undefined]) {
    const problem = await reachInSandbox(policy, tried, sandbox, folder);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Where a bare name in the policy is looked for. */
function searchPath(): Finding {
  const check = "PATH";
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  const unsafe = folders.filter((folder) => !isAbsolute(folder) || isOpenToAll(folder));
  const name = process.platform === "win32" ? "portcullis.cmd" : "portcullis";
  const own = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
  const where = own ?? "not on it, so a client needs its whole path";
  if (unsafe.length === 0) {
    return { check, ok: true, detail: `${folders.length} folders, none of them open to others; portcullis: ${where}` };
  }
  return {
    check,
    ok: true,
    detail: `${unsafe.join(", ")} can be filled by anyone and is not searched for programs`,
    hint: "take it out of PATH, or close it to others",
  };
}

function isOpenToAll(folder: string): boolean {
  const stats = statSync(folder, { throwIfNoEntry: false });
  return stats !== undefined && process.platform !== "win32" && (stats.mode & 0o002) !== 0;
}

/** Commands of a host that root started run as another user, to whom root's own folders are closed. */
function node(): Finding {
  const check = "Node's place";
  const closed = process.geteuid?.() === 0 ? closedFolder(process.execPath) : undefined;
  if (closed === undefined) return { check, ok: true, detail: process.execPath };
  return {
    check,
    ok: true,
    detail: `${process.execPath} lies in ${closed}, which is closed to the user that commands run as`,
    hint: "commands that need Node (npm, scripts) have to list its folder under mounts; or install Node for everyone, below /usr",
  };
}

function closedFolder(path: string): string | undefined {
  for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return folder;
  }
  return undefined;
}
