// Giving up rights, best way first. Whatever is refused is noted and the next best way is tried; what is left in force
// is reported truthfully, and the host decides whether it is enough.

import { chownSync, mkdtempSync, openSync } from "node:fs";
import { join } from "node:path";
import { isWithin } from "../../paths/mounts.js";
import { writablePieces } from "../../paths/repositories.js";
import { bubblewrapFilter } from "../bubblewrap.js";
import { type Confinement, type Protections, SCRATCH } from "../confinement.js";
import type { StartMessage } from "../messages.js";
import { closeInherited, openChildren } from "./descriptors.js";
import { type FileRules, restrictFiles, SCOPES } from "./landlock.js";
import { adoptOrphans, closeToOthers, dropRights, forbidNewPrivileges, type Rights } from "./privileges.js";
import { type FilterRules, seccompProgram } from "./seccomp.js";
import { CLONE, type Kernel, kernel, noted, ok } from "./syscalls.js";
import { type Entered, enterView, type View } from "./view.js";

interface PidNamespace {
  readonly calls: Kernel;
  /** The supervisor's own namespace, to come back to. */
  readonly own: number;
}

export interface Confined {
  readonly protections: Protections;
  readonly pidNamespace: PidNamespace | undefined;
  /** Where commands may put temporary files. */
  readonly scratch: string;
  /** Emptied after each command. */
  readonly temporary: Entered["temporary"];
  /** Where a command starts that has no directory of the caller's. */
  readonly idleDirectory: string;
  reapOrphans(): void;
  /** Processes of this one, orphans that it adopted among them. Empty where others see to that. */
  children(): number[];
}

export function confine(start: StartMessage): Confined {
  const calls = start.without.native === true ? undefined : kernel();
  closeInherited();
  return calls === undefined || start.byBubblewrap ? unconfined(start, calls) : confineBy(calls, start);
}

/** What the main process finds out. */
const OF_MAIN = { rlimits: false, cgroup: [], parentDeathSignal: false, openMounts: [] };

/** Supervision only: no koffi, another platform, or bubblewrap does the confining. */
function unconfined(start: StartMessage, calls: Kernel | undefined): Confined {
  const adopts = calls !== undefined && adoptOrphans(calls);
  const wrapped = start.byBubblewrap;
  const scratch = wrapped ? SCRATCH : makeScratch(start);
  const { network } = start.confinement;
  const seccomp = wrapped && bubblewrapFilter(network) !== undefined;
  return {
    protections: {
      files: wrapped ? "bubblewrap" : "none",
      network: network ? "open" : networkBy(wrapped, seccomp),
      processTree: wrapped ? "pid-namespace" : adopts ? "subreaper" : "process-group",
      seccomp,
      noNewPrivileges: wrapped,
      user: wrapped ? (start.confinement.user?.uid ?? "same") : "same",
      userNamespace: wrapped && process.geteuid?.() !== 0,
      ...OF_MAIN,
      notes: [...start.confinement.notes, ...(calls === undefined ? ["koffi is not available here"] : [])],
      gaps: [],
    },
    pidNamespace: undefined,
    scratch,
    temporary: wrapped ? { emptied: [], kept: [], hasTmp: true } : { emptied: [scratch], kept: [], hasTmp: false },
    idleDirectory: wrapped ? "/" : scratch,
    reapOrphans: () => reapAll(calls),
    children: () => [],
  };
}

function confineBy(calls: Kernel, start: StartMessage): Confined {
  const { confinement, without } = start;
  const notes: string[] = [...confinement.notes];
  const isOff = confinement.mode === "off";
  const ownPidNamespace = without.pidNamespace === true ? -1 : openSync("/proc/self/ns/pid", "r");
  const children = openChildren();
  const netFlag = confinement.network || isOff ? 0 : CLONE.NEWNET;
  const hasNamespaces =
    !isOff &&
    without.view !== true &&
    noted(notes, "namespaces", calls.unshare(CLONE.NEWNS | CLONE.NEWIPC | CLONE.NEWUTS | netFlag));
  const view = hasNamespaces ? makeView(calls, start, notes) : undefined;
  const hasView = view !== undefined;
  const scratch = hasView ? SCRATCH : makeScratch(start);
  const temporary = view?.temporary ?? { emptied: [scratch], kept: [], hasTmp: false };
  const privileges = !isOff && forbidNewPrivileges(calls);
  const landlock =
    !isOff && without.landlock !== true
      ? restrictFiles(calls, fileRules(start, hasView, temporary.emptied, notes), confinement.network)
      : "off";
  if (typeof landlock === "string" && landlock !== "off") notes.push(`Landlock: ${landlock}`);
  const canNest = ownPidNamespace >= 0 && probePidNamespace(calls, ownPidNamespace, notes);
  const bypass = bypassFor(view, typeof landlock === "number");
  const user = isOff ? "same" : leaveRights(calls, start, bypass, canNest, notes);
  const version = typeof landlock === "number" ? landlock : 0;
  // The dedicated user owns nothing outside; any other may.
  const ownsFilesOutside = user === "same" || !confinement.actsAsOwner;
  const filter = filterRules(confinement, { hasView, landlock: version, ownsFilesOutside, hasPidNamespace: canNest });
  const seccomp = !isOff && without.seccomp !== true && trySeccomp(calls, filter, notes);
  const adopts = !canNest && adoptOrphans(calls);
  if (!isOff) closeToOthers(calls);
  const hasNetNamespace = hasNamespaces && netFlag !== 0;
  return {
    protections: {
      files: typeof landlock === "number" ? (hasView ? "view+landlock" : "landlock") : hasView ? "view" : "none",
      network: confinement.network ? "open" : networkBy(hasNetNamespace, seccomp),
      processTree: canNest ? "pid-namespace" : adopts ? "subreaper" : "process-group",
      seccomp,
      noNewPrivileges: privileges,
      user,
      userNamespace: start.inUserNamespace,
      ...OF_MAIN,
      notes,
      gaps: isOff ? [] : hasView ? gapsOfView(view) : gapsOfLandlock(filter, seccomp, ownsFilesOutside),
    },
    pidNamespace: canNest ? { calls, own: ownPidNamespace } : undefined,
    scratch,
    temporary,
    idleDirectory: scratch,
    reapOrphans: () => reapAll(calls),
    children: adopts ? children : () => [],
  };
}

function networkBy(hasNamespace: boolean, seccomp: boolean): Protections["network"] {
  if (hasNamespace) return seccomp ? "namespace+seccomp" : "namespace";
  return seccomp ? "seccomp" : "not restricted";
}

/** Half a view would be no view: when building fails, the supervisor is of no use and says so by dying. */
function makeView(calls: Kernel, start: StartMessage, notes: string[]): Entered {
  const { confinement } = start;
  try {
    const view: View = {
      confinement,
      actsAsOwner: confinement.actsAsOwner && start.without.ownerMapping !== true,
      hasOwnProcesses: start.hasOwnProcesses && process.pid === 1 && start.without.proc !== true,
    };
    return enterView(calls, view, notes);
  } catch (error) {
    throw new Error(`view: ${error instanceof Error ? error.message : String(error)}; ${notes.join(", ")}`);
  }
}

/** Where the user cannot act as the directories' owner, it may pass over their modes instead, as far as that is contained. */
function bypassFor(view: Entered | undefined, hasLandlock: boolean): Rights["bypassModes"] {
  if (view !== undefined) return view.actsAsOwner ? "no" : "all";
  return hasLandlock ? "read" : "no";
}

/** A real directory, because no view provides one. The main process removes it when the supervisor is gone. */
function makeScratch(start: StartMessage): string {
  const directory = mkdtempSync(join(start.tmpdir, "portcullis-scratch-"));
  const { user, mode } = start.confinement;
  if (user !== undefined && mode !== "off" && process.geteuid?.() === 0) chownSync(directory, user.uid, user.gid);
  return directory;
}

function fileRules(start: StartMessage, hasView: boolean, temporary: readonly string[], notes: string[]): FileRules {
  const { readableRoots, writableRoots, closed, repositories, system, files, devices, execFromRoots } =
    start.confinement;
  // Landlock adds rights on the way down and never takes one away: only a view can close a part of a writable root.
  const shut = hasView
    ? []
    : writableRoots.filter((writableRoot) => closed.some((path) => isWithin(path, writableRoot)));
  for (const writableRoot of shut)
    notes.push(`writable roots: ${writableRoot} is read-only, because a stricter one lies in it`);
  const open = writableRoots.filter((writableRoot) => !shut.includes(writableRoot));
  const pieces = hasView ? open : open.flatMap((writableRoot) => writablePieces(writableRoot, repositories));
  const parted = open.filter((writableRoot) => !pieces.includes(writableRoot));
  for (const writableRoot of parted)
    notes.push(`writable roots: in ${writableRoot} no name is made beside a repository, only what exists is written`);
  const write = [...temporary, ...devices];
  const execute = [...system, ...(execFromRoots ? [...readableRoots, ...writableRoots, ...temporary] : [])];
  return {
    read: hasView ? ["/"] : [...readableRoots, ...shut, ...parted, ...files],
    execute,
    write,
    writeUnlinked: pieces,
  };
}

function probePidNamespace(calls: Kernel, own: number, notes: string[]): boolean {
  if (!noted(notes, "PID namespace", calls.unshare(CLONE.NEWPID))) return false;
  // Once inside without a way back, only one command could ever be started.
  ok("leave the PID namespace", calls.setns(own, CLONE.NEWPID));
  return true;
}

function leaveRights(
  calls: Kernel,
  start: StartMessage,
  bypass: Rights["bypassModes"],
  keepAdmin: boolean,
  notes: string[],
): number | "same" {
  const { user, actsAsOwner } = start.confinement;
  const isRoot = process.geteuid?.() === 0;
  if (!isRoot && !start.inUserNamespace) return "same";
  const target = start.inUserNamespace ? undefined : user;
  return dropRights(calls, { user: target, bypassModes: actsAsOwner ? bypass : "no", keepAdmin }, notes);
}

function trySeccomp(calls: Kernel, rules: FilterRules, notes: string[]): boolean {
  const program = seccompProgram(process.arch, rules);
  if (program !== undefined) return noted(notes, "seccomp", calls.seccompFilter(program));
  notes.push(`seccomp: no table for ${process.arch}`);
  return false;
}

/** The next child is the first process of a namespace of its own. Gives the way back: threads cannot be made meanwhile. */
export function enterPidNamespace({ calls, own }: PidNamespace): () => void {
  ok("PID namespace", calls.unshare(CLONE.NEWPID));
  return () => ok("leave the PID namespace", calls.setns(own, CLONE.NEWPID));
}

const MAX_REAPED = 100_000;

function reapAll(calls: Kernel | undefined): void {
  for (let i = 0; calls !== undefined && i < MAX_REAPED && calls.reapOne() > 0; i++);
}

// What the filter has to close because nothing else does, and what stays open or is taken away all the same. The latter is said in
// every answer, and by `doctor`.

const TRUNCATION = 3;

interface InForce {
  readonly hasView: boolean;
  /** Its version; 0 without. */
  readonly landlock: number;
  readonly ownsFilesOutside: boolean;
  readonly hasPidNamespace: boolean;
}

export function filterRules({ network, mode }: Confinement, inForce: InForce): FilterRules {
  const { hasView, landlock, ownsFilesOutside, hasPidNamespace } = inForce;
  return {
    network,
    hasOwnSocketNames: hasView && landlock >= SCOPES,
    // Most builds need it; `preferred` is for running with what there is.
    changesMetadataByName: hasView || !ownsFilesOutside || mode === "preferred",
    holdsSignals: hasPidNamespace || landlock >= SCOPES,
    guardsTruncation: hasView || landlock >= TRUNCATION,
  };
}

export function gapsOfView({ hasProc, temporary }: Entered): string[] {
  const noTmp = temporary.hasTmp ? [] : ["the policy has a file in /tmp, or all of it: commands have TMPDIR instead"];
  return hasProc ? noTmp : ["there is no /proc for commands, and so no /dev/stdin, /dev/stdout or /dev/fd", ...noTmp];
}

export function gapsOfLandlock(filter: FilterRules, seccomp: boolean, ownsFilesOutside: boolean): string[] {
  return [
    "names, sizes and times of files outside can be asked for",
    "there is no /tmp, /dev/shm or /proc for commands, only TMPDIR and HOME",
    ...(ownsFilesOutside ? [metadataGap(filter, seccomp)] : []),
    ...(filter.holdsSignals ? [] : ["signals reach the other processes of the same user, all but SIGUSR1"]),
  ];
}

function metadataGap({ changesMetadataByName }: FilterRules, seccomp: boolean): string {
  return changesMetadataByName || !seccomp
    ? "mode, owner and times of files outside can be changed"
    : "mode, owner and times cannot be changed by name, not even in the writable roots, and can by descriptor wherever a file can be read";
}
