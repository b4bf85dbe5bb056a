// Rights of the supervisor's thread, inherited by every command it starts. After exec a command has none of root's rights,
// whatever the file it runs says (no_new_privs) and whatever its user id is (SECBIT_NOROOT).

import { syscallErrorName, type Kernel } from "./syscalls.js";

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

/** Nobody looks into this process by /proc, not even a process of the same user: it holds more than its commands. */
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

/** Gives the user in force. Throws when rights would be left that should be gone. */
export function dropRights(calls: Kernel, rights: Rights, notes: string[]): number | "same" {
  const ok = (what: string, result: number): void => {
    if (result < 0) throw new Error(`${what}: ${syscallErrorName(result)}`);
  };
  const note = (what: string, result: number): boolean => {
    if (result < 0) notes.push(`${what}: ${syscallErrorName(result)}`);
    return result >= 0;
  };
  note("securebits", calls.prctl(PR_SET_SECUREBITS, SECUREBITS));
  // A container may run root without the right to become somebody else; then root stays, but without its rights.
  const user =
    rights.user !== undefined && note("change of user", calls.setUser(rights.user.uid, rights.user.gid))
      ? rights.user.uid
      : "same";
  const bypass = user === "same" ? [] : BYPASS[rights.bypassModes];
  const needed = [...bypass, ...(rights.keepAdmin ? [CAP_SYS_ADMIN] : [])];
  // The right to empty the bounding set goes last; what is inherited must be named while the set is still full.
  if (note("capabilities", calls.setCapabilities(bits([...needed, CAP_SETPCAP]), bits(bypass)))) {
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
