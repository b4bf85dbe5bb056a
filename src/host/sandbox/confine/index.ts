// Giving up rights, best way first. Whatever is refused is noted and the next best way is tried; what is left in force
// is reported truthfully, and the host decides whether it is enough.

import { chownSync, mkdtempSync, openSync } from "node:fs";
import { join } from "node:path";
import { isWithin } from "../../paths/mounts.js";
import { writablePieces } from "../../paths/repositories.js";
import { bubblewrapFilter } from "../bubblewrap.js";
import type { Protections } from "../confinement.js";
import { SCRATCH } from "../confinement.js";
import type { StartMessage } from "../messages.js";
import { closeInherited } from "./descriptors.js";
import { openChildren, readChildren } from "./children.js";
import { filterRules, gapsOfLandlock, gapsOfView } from "./gaps.js";
import { type FileRules, restrictFiles } from "./landlock.js";
import { adoptOrphans, closeToOthers, dropRights, forbidNewPrivileges, type Rights } from "./privileges.js";
import { type FilterRules, seccompProgram } from "./seccomp.js";
import { syscallErrorName, type Kernel, kernel } from "./syscalls.js";
import { type Entered, enterView, type View } from "./view.js";

const CLONE_NEWNS = 0x00020000;
const CLONE_NEWUTS = 0x04000000;
const CLONE_NEWIPC = 0x08000000;
const CLONE_NEWPID = 0x20000000;
const CLONE_NEWNET = 0x40000000;

const SCRATCH_FILES = 20_000;

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
  /** Where a command starts that has no folder of the caller's. */
  readonly idleFolder: string;
  reapOrphans(): void;
  /** Processes of this one, orphans that it adopted among them. Empty where others see to that. */
  children(): number[];
}

export function confine(start: StartMessage): Confined {
  const calls = start.without.native === true ? undefined : kernel();
  closeInherited();
  return calls === undefined || start.byBubblewrap ? unconfined(start, calls) : confineBy(calls, start);
}

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
      rlimits: false,
      cgroup: [],
      parentDeathSignal: false,
      notes: [...start.confinement.notes, ...(calls === undefined ? ["koffi is not available here"] : [])],
      gaps: [],
      openMounts: [],
    },
    pidNamespace: undefined,
    scratch,
    temporary: wrapped ? { emptied: [], kept: [], hasTmp: true } : { emptied: [scratch], kept: [], hasTmp: false },
    idleFolder: wrapped ? "/" : scratch,
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
  const netFlag = confinement.network || isOff ? 0 : CLONE_NEWNET;
  const hasNamespaces =
    !isOff &&
    without.view !== true &&
    attempt(notes, "namespaces", calls.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | netFlag));
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
      rlimits: false,
      cgroup: [],
      parentDeathSignal: false,
      notes,
      gaps: isOff ? [] : hasView ? gapsOfView(view) : gapsOfLandlock(filter, seccomp, ownsFilesOutside),
      openMounts: [],
    },
    pidNamespace: canNest ? { calls, own: ownPidNamespace } : undefined,
    scratch,
    temporary,
    idleFolder: scratch,
    reapOrphans: () => reapAll(calls),
    children: () => (adopts ? readChildren(children) : []),
  };
}

function attempt(notes: string[], what: string, result: number): boolean {
  if (result >= 0) return true;
  notes.push(`${what}: ${syscallErrorName(result)}`);
  return false;
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
      folders: [...confinement.roots, ...confinement.closed, ...confinement.repositories],
      system: confinement.system,
      copies: confinement.files,
      writable: [...confinement.zones, ...confinement.pinned],
      devices: confinement.devices,
      scratch: { path: SCRATCH, bytes: confinement.scratchBytes, files: SCRATCH_FILES },
      user: confinement.user,
      actsAsOwner: confinement.actsAsOwner && start.without.ownerMapping !== true,
      mayExecute: confinement.execFromRoots,
      hasOwnProcesses: start.hasOwnProcesses && process.pid === 1 && start.without.proc !== true,
    };
    return enterView(calls, view, notes);
  } catch (error) {
    throw new Error(`view: ${error instanceof Error ? error.message : String(error)}; ${notes.join(", ")}`);
  }
}

/** Where the user cannot act as the folders' owner, it may pass over their modes instead, as far as that is contained. */
function bypassFor(view: Entered | undefined, hasLandlock: boolean): Rights["bypassModes"] {
  if (view !== undefined) return view.actsAsOwner ? "no" : "all";
  return hasLandlock ? "read" : "no";
}

/** A real folder, because no view provides one. The main process removes it when the supervisor is gone. */
function makeScratch(start: StartMessage): string {
  const folder = mkdtempSync(join(start.tmpdir, "portcullis-scratch-"));
  const { user, mode } = start.confinement;
  if (user !== undefined && mode !== "off" && process.geteuid?.() === 0) chownSync(folder, user.uid, user.gid);
  return folder;
}

function fileRules(start: StartMessage, hasView: boolean, temporary: readonly string[], notes: string[]): FileRules {
  const { roots, zones, closed, repositories, system, files, devices, execFromRoots } = start.confinement;
  // Landlock adds rights on the way down and never takes one away: only a view can close a part of a zone.
  const shut = hasView ? [] : zones.filter((zone) => closed.some((path) => isWithin(path, zone)));
  for (const zone of shut) notes.push(`zones: ${zone} is read-only, because a stricter one lies in it`);
  const open = zones.filter((zone) => !shut.includes(zone));
  const pieces = hasView ? open : open.flatMap((zone) => writablePieces(zone, repositories));
  const parted = open.filter((zone) => !pieces.includes(zone));
  for (const zone of parted)
    notes.push(`zones: in ${zone} no name is made beside a repository, only what exists is written`);
  const write = [...temporary, ...devices];
  const execute = [...system, ...(execFromRoots ? [...roots, ...zones, ...temporary] : [])];
  return { read: hasView ? ["/"] : [...roots, ...shut, ...parted, ...files], execute, write, writeUnlinked: pieces };
}

function probePidNamespace(calls: Kernel, own: number, notes: string[]): boolean {
  if (!attempt(notes, "PID namespace", calls.unshare(CLONE_NEWPID))) return false;
  const left = calls.setns(own, CLONE_NEWPID);
  // Once inside without a way back, only one command could ever be started.
  if (left < 0) throw new Error(`PID namespace cannot be left: ${syscallErrorName(left)}`);
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
  if (program !== undefined) return attempt(notes, "seccomp", calls.seccompFilter(program));
  notes.push(`seccomp: no table for ${process.arch}`);
  return false;
}

/** The next child is the first process of a namespace of its own. Gives the way back: threads cannot be made meanwhile. */
export function enterPidNamespace({ calls, own }: PidNamespace): () => void {
  const entered = calls.unshare(CLONE_NEWPID);
  if (entered < 0) throw new Error(`PID namespace: ${syscallErrorName(entered)}`);
  return () => {
    const left = calls.setns(own, CLONE_NEWPID);
    if (left < 0) throw new Error(`PID namespace: ${syscallErrorName(left)}`);
  };
}

const MAX_REAPED = 100_000;

function reapAll(calls: Kernel | undefined): void {
  for (let i = 0; calls !== undefined && i < MAX_REAPED && calls.reapOne() > 0; i++);
}
