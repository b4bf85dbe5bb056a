// What this machine can do for a test, and what runs on it.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { adoptOrphans } from "../../../src/host/sandbox/confine/privileges.js";
import { kernel } from "../../../src/host/sandbox/confine/syscalls.js";
import { has } from "../../setup/programs.js";

export const isRoot = process.getuid?.() === 0;

/** Why a process of an ordinary user cannot load this repository, started by root; undefined when it can. */
export function unreachableForOthers(): string | undefined {
  if (!isRoot) return undefined;
  for (let directory = import.meta.dirname; directory !== dirname(directory); directory = dirname(directory)) {
    if ((statSync(directory).mode & 0o005) !== 0o005) return `skipped: ${directory} is closed to ordinary users`;
  }
  return undefined;
}

interface Running {
  readonly pid: number;
  readonly parent: number;
  readonly commandLine: string;
}

/** Every process, zombies left out (they have no command line). */
function running(): Running[] {
  return readdirSync("/proc")
    .filter((name) => /^[0-9]+$/.test(name))
    .flatMap((pid) => {
      try {
        const commandLine = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
        const parent = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) \S+ (\d+) .*$/s, "$1");
        return [{ pid: Number(pid), parent: Number(parent), commandLine }];
      } catch {
        return [];
      }
    })
    .filter(({ commandLine }) => commandLine !== "");
}

/** Command lines that contain a mark, which must be random: the processes of the whole machine are looked at. */
export function commandLinesWith(mark: string): string[] {
  return running().flatMap(({ commandLine }) => (commandLine.includes(mark) ? [commandLine] : []));
}

/** The one process whose command line is so; a random path in it makes it one of ours. */
export function pidOf(isWanted: (commandLine: string) => boolean): number {
  const found = running().find(({ commandLine }) => isWanted(commandLine));
  if (found === undefined) throw new Error("no process with that command line");
  return found.pid;
}

let adopts = false;

/**
 * Command lines of descendants of this process. Orphans of them become children of this process from the first call on,
 * so one that was left behind is still found, and a process of the rest of the machine never is.
 */
export function ownCommandLines(): string[] {
  const calls = kernel();
  adopts ||= calls !== undefined && adoptOrphans(calls);
  if (!adopts) throw new Error("orphans cannot be adopted: PR_SET_CHILD_SUBREAPER failed");
  const all = running();
  const own = new Set([process.pid]);
  for (let size = 0; size < own.size; ) {
    size = own.size;
    for (const { pid, parent } of all) if (own.has(parent)) own.add(pid);
  }
  return all.flatMap(({ pid, commandLine }) => (own.has(pid) && pid !== process.pid ? [commandLine] : []));
}

let fuse: boolean | undefined;

/** Mounts one for real. */
export function canMountFuse(): boolean {
  fuse ??= tryFuse();
  return fuse;
}

function tryFuse(): boolean {
  if (!isRoot || !existsSync("/dev/fuse")) return false;
  const directory = mkdtempSync(join(tmpdir(), "fuse-probe-"));
  try {
    execFileSync("bindfs", [tmpdir(), directory], { stdio: "ignore" });
    execFileSync("fusermount3", ["-u", directory], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

export const SFTP_SERVER = "/usr/lib/openssh/sftp-server";

export function canServeSftp(): boolean {
  return has("sshfs") && has("socat") && existsSync(SFTP_SERVER);
}
