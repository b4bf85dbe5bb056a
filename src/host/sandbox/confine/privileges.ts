// Rights of the supervisor's thread, inherited by every command it starts. After exec a command has none of root's rights,
// whatever the file it runs says (no_new_privs) and whatever its user id is (SECBIT_NOROOT).

import { spawn } from "node:child_process";
import { openSync, readlinkSync, writeFileSync } from "node:fs";
import { type Kernel, noted, ok } from "./syscalls.js";

const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;
const PR_SET_DUMPABLE = 4;
const PR_SET_SECUREBITS = 28;
const PR_CAPBSET_DROP = 24;
const PR_SET_NO_NEW_PRIVS = 38;
const PR_CAP_AMBIENT = 47;
const AMBIENT_RAISE = 2;
const AMBIENT_CLEAR_ALL = 4;
const PR_SET_CHILD_SUBREAPER = 36;

/**
 * SECBIT_NOROOT: no rights by being user 0. SECBIT_NO_SETUID_FIXUP: what is kept survives the change of user and counts in
 * access(2) as well, by which programs ask beforehand. Both locked.
 */
const SECUREBITS = 0b1111;

const CAP_DAC_OVERRIDE = 1n;
const CAP_DAC_READ_SEARCH = 2n;
const CAP_FOWNER = 3n;
const CAP_SETPCAP = 8n;
const CAP_SYS_ADMIN = 21n;
const LAST_CAP = 63;

export function forbidNewPrivileges(calls: Kernel): boolean {
  return calls.prctl(PR_SET_NO_NEW_PRIVS, 1) === 0;
}

/** Orphans of this process's commands become its children instead of init's, and can be found. */
export function adoptOrphans(calls: Kernel): boolean {
  return calls.prctl(PR_SET_CHILD_SUBREAPER, 1) === 0;
}

/** The kernel ends this process when its parent ends. A change of user clears it. */
export function dieWithParent(calls: Kernel): boolean {
  return calls.prctl(PR_SET_PDEATHSIG, SIGKILL) === 0;
}

/** Closes this process to /proc and ptrace, also for processes of the same user: it holds more than its commands. */
export function closeToOthers(calls: Kernel): boolean {
  return calls.prctl(PR_SET_DUMPABLE, 0) === 0;
}

export interface Rights {
  readonly user: { readonly uid: number; readonly gid: number } | undefined;
  /**
   * File modes do not count, for a user that root made up: `all` in a view that holds nothing but what the policy opens;
   * `read` under Landlock alone, which does not cover every way of changing a file outside; `owner` for a server of a root
   * gateway, which may also change modes and times, as the files' owner could.
   */
  readonly bypassModes: "owner" | "all" | "read" | "no";
  /** The supervisor itself needs it for each PID namespace; commands lose it at exec. */
  readonly keepAdmin: boolean;
}

const BYPASS = {
  owner: [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER],
  all: [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH],
  read: [CAP_DAC_READ_SEARCH],
  no: [],
};

/** Returns the user in force. Throws when rights would be left that should be gone. */
export function dropRights(calls: Kernel, rights: Rights, notes: string[]): number | "same" {
  noted(notes, "securebits", calls.prctl(PR_SET_SECUREBITS, SECUREBITS));
  // A container may run root without the right to change user; then root stays, but without its rights.
  const user =
    rights.user !== undefined && noted(notes, "change of user", calls.setUser(rights.user.uid, rights.user.gid))
      ? rights.user.uid
      : "same";
  const bypass = user === "same" ? [] : BYPASS[rights.bypassModes];
  const needed = [...bypass, ...(rights.keepAdmin ? [CAP_SYS_ADMIN] : [])];
  // The right to empty the bounding set goes last; what is inherited must be named while the set is still full.
  if (noted(notes, "capabilities", calls.setCapabilities(bits([...needed, CAP_SETPCAP]), bits(bypass)))) {
    for (let cap = 0; cap <= LAST_CAP; cap++) calls.prctl(PR_CAPBSET_DROP, cap);
  }
  ok("ambient", calls.prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL));
  for (const cap of bypass) ok("ambient", calls.prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, Number(cap)));
  ok("capabilities", calls.setCapabilities(bits(needed), bits(bypass)));
  return user;
}

function bits(caps: readonly bigint[]): bigint {
  return caps.reduce((set, cap) => set | (1n << cap), 0n);
}

// Inside the policy's directories a command acts as their owner, outside it has no rights. The kernel does this per mount:
// a user namespace serves as a table in which the owner and the sandbox's user change places (mount_setattr(2), ID mapping).

const ALL_IDS = 4_294_967_295;
const WAIT_MS = 2;
const MAX_WAITS = 500;

/** Lines for /proc/<pid>/uid_map: every id is itself, but `a` and `b` are exchanged. */
export function exchangeMap(a: number, b: number): string {
  if (a === b) return `0 0 ${ALL_IDS}\n`;
  const [low, high] = a < b ? [a, b] : [b, a];
  const ranges: [inside: number, outside: number, count: number][] = [
    [0, 0, low],
    [low, high, 1],
    [low + 1, low + 1, high - low - 1],
    [high, low, 1],
    [high + 1, high + 1, ALL_IDS - high - 1],
  ];
  return ranges
    .filter(([, , count]) => count > 0)
    .map((range) => `${range.join(" ")}\n`)
    .join("");
}

export interface Ids {
  readonly uid: number;
  readonly gid: number;
}

/** A descriptor of a namespace with that table; the process that made it is gone again. Throws when refused. */
export function exchangeNamespace(owner: Ids, user: Ids): number {
  // By another namespace's numbers, the process found would be another one.
  if (readlinkSync("/proc/self") !== String(process.pid)) throw new Error("/proc is another PID namespace's");
  const own = readlinkSync("/proc/self/ns/user");
  const helper = spawn("unshare", ["--user", "--", "sleep", "60"], { stdio: "ignore", env: { PATH: "/usr/bin:/bin" } });
  // A missing program is reported later, by an event; there is no process id then.
  helper.on("error", () => undefined);
  const { pid } = helper;
  if (pid === undefined) throw new Error("unshare is not available");
  try {
    const directory = `/proc/${pid}`;
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (let waits = 0; readlinkSync(`${directory}/ns/user`) === own; waits++) {
      if (waits === MAX_WAITS) throw new Error("no user namespace was created");
      Atomics.wait(pause, 0, 0, WAIT_MS);
    }
    writeFileSync(`${directory}/uid_map`, exchangeMap(owner.uid, user.uid));
    writeFileSync(`${directory}/gid_map`, exchangeMap(owner.gid, user.gid));
    return openSync(`${directory}/ns/user`, "r");
  } finally {
    helper.kill("SIGKILL");
  }
}
