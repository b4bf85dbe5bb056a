// Permissions of the policy, of the state directory and of the policy's directories; their mounts and hard links.

import { accessSync, constants, existsSync, lstatSync, readdirSync, type Stats, statSync } from "node:fs";
import { join } from "node:path";
import { isNetworkType, isWithin, mountOf, type Policy, readMounts } from "../../../host/index.js";
import type { Finding } from "../../../lib/finding.js";
import type { HostFiles } from "../config/files.js";
import { credentialsBelow, opennessOf } from "../config/read.js";

export function permissions(policy: Policy, files: HostFiles): Finding[] {
  return [policyFile(files.config), stateDirectory(files.state), credential(policy), ...placesOf(policy)];
}

function policyFile(config: string): Finding {
  const check = "who can change the policy";
  if (process.platform === "win32") return { check, ok: true, detail: "left to the directory's access list" };
  const open = opennessOf(config);
  if (open !== undefined) return { check, ok: false, detail: open.detail, remedy: open.remedy };
  return { check, ok: true, detail: statSync(config).uid === process.getuid?.() ? "you alone" : "root alone" };
}

function credential(policy: Policy): Finding {
  const check = "operator's credential";
  const [token] = credentialsBelow(policy);
  if (token === undefined) return { check, ok: true, detail: "none was seen in the policy's directories" };
  return {
    check,
    ok: false,
    detail: `the agent can read ${token}, with which a gateway's calls are approved`,
    remedy: "choose another data directory for that gateway (--dir)",
  };
}

function stateDirectory(state: string): Finding {
  const check = "ledger's directory";
  if (!existsSync(state)) return { check, ok: true, detail: `${state} will be made by the host` };
  if (!may(state, constants.R_OK | constants.W_OK | constants.X_OK)) {
    return { check, ok: false, detail: `${state} cannot be written`, remedy: `chown it to user ${process.getuid?.()}` };
  }
  const open = process.platform !== "win32" && (statSync(state).mode & 0o077) !== 0;
  return open
    ? { check, ok: false, detail: `${state} is open to other users`, remedy: `chmod 700 ${state}` }
    : { check, ok: true, detail: state };
}

function placesOf({ readableRoots: roots, writableRoots: zones }: Policy): Finding[] {
  const closed = roots.filter((root) => !may(root.path, constants.R_OK | constants.X_OK));
  const readable: Finding =
    closed[0] === undefined
      ? { check: "directories to read", ok: true, detail: roots.map((root) => root.path).join(", ") || "none" }
      : {
          check: "directories to read",
          ok: false,
          detail: `${closed.map((root) => root.path).join(", ")} cannot be read by you`,
          remedy: "run the host as a user with read access, or remove it from allowedRoots",
        };
  const stuck = zones.filter((zone) => existsSync(zone.path) && !may(zone.path, constants.W_OK | constants.X_OK));
  const writable: Finding =
    stuck[0] === undefined
      ? { check: "directories to write", ok: true, detail: zones.map((zone) => zone.path).join(", ") || "none" }
      : {
          check: "directories to write",
          ok: false,
          detail: `${stuck.map((zone) => zone.path).join(", ")} cannot be written by you, or is on a read-only disk`,
          remedy: "run the host as a user with write access, or remove it from writeRules",
        };
  return [readable, writable];
}

function may(path: string, how: number): boolean {
  try {
    accessSync(path, how);
    return true;
  } catch {
    return false;
  }
}

const MAX_NAMED = 5;

export function mounts({ readableRoots: roots, writableRoots: zones }: Policy): Finding {
  const check = "file systems";
  if (process.platform !== "linux") return { check, ok: true, detail: "looked at when a file is opened" };
  const table = readMounts();
  const places = [...roots, ...zones].map((place) => place.path);
  const types = [...new Set(places.map((path) => mountOf(path, table)?.type ?? "unknown"))];
  const remote = types.filter(isNetworkType);
  if (remote.length > 0) {
    const hint = "a hung server can hold up a call; denyNetworkFS: true refuses such directories";
    return { check, ok: true, detail: `${remote.join(", ")}: data of another machine`, hint };
  }
  const inside = table.map((mount) => mount.path).filter((path) => isInside(path, places));
  const detail = types.join(", ") || "nothing to look at";
  if (inside.length === 0) return { check, ok: true, detail };
  const named = inside.slice(0, MAX_NAMED).join(", ");
  return {
    check,
    ok: true,
    detail: `${detail}; other file systems are mounted inside: ${named}`,
    hint: "they stay closed to the agent; name them in allowedRoots if they are meant",
  };
}

function isInside(path: string, places: readonly string[]): boolean {
  return places.some((place) => path !== place && isWithin(path, place)) && !places.includes(path);
}

/** Entries looked at; a writable root may be the size of a disk. */
const MAX_ENTRIES = 20_000;

export function hardLinks({ hardLinks: rule, writableRoots: zones, commands }: Policy): Finding[] {
  if (rule !== "deny" || commands.size === 0 || zones.length === 0 || process.platform !== "linux") return [];
  const check = "hard links";
  const { first, count, isComplete } = look(zones.map((zone) => zone.path));
  const seen = isComplete ? "" : ` among the first ${MAX_ENTRIES} entries`;
  if (first === undefined) return [{ check, ok: true, detail: `none in the writable directories${seen}` }];
  const hint =
    "a command that writes such a file changes it under its other names too; replace it by a copy of its own";
  return [{ check, ok: true, detail: `${count} in the writable directories${seen}, first ${first}`, hint }];
}

interface Seen {
  readonly first: string | undefined;
  readonly count: number;
  readonly isComplete: boolean;
}

/** No link is followed, and nothing that is mounted below is touched: it may hang. */
function look(directories: readonly string[]): Seen {
  const mounts = new Set(readMounts().map((mount) => mount.path));
  const waiting = [...directories];
  let [count, entries] = [0, 0];
  let first: string | undefined;
  for (let directory = waiting.pop(); directory !== undefined; directory = waiting.pop()) {
    for (const name of namesIn(directory)) {
      const path = join(directory, name);
      if (++entries > MAX_ENTRIES) return { first, count, isComplete: false };
      const stats = mounts.has(path) ? undefined : statsOf(path);
      if (stats?.isDirectory() === true) waiting.push(path);
      if (stats?.isFile() !== true || stats.nlink < 2) continue;
      count++;
      first ??= path;
    }
  }
  return { first, count, isComplete: true };
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return []; // Not there yet, or not ours to read.
  }
}

function statsOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}
