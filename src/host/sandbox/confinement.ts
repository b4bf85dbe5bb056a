// What holds a command, as plain data. Two commands with the same confinement can be run by the same supervisor.

import type { SandboxMode } from "../policy/index.js";

export interface Confinement {
  readonly mode: SandboxMode;
  /** Folders that may be read. */
  readonly roots: readonly string[];
  /** Folders that may be read and written. */
  readonly zones: readonly string[];
  /** Inside a zone, and yet never written. Where only the whole zone can be closed, the whole zone is. */
  readonly closed: readonly string[];
  /** Insides of repositories in a zone: never written. Where only whole directories can be opened, what lies beside them is. */
  readonly repositories: readonly string[];
  /** Directories between a zone and what is closed in it: writable, and neither renamed nor removed. */
  readonly pinned: readonly string[];
  /** Programs, libraries, and the command's own mounts. */
  readonly system: readonly string[];
  readonly files: readonly string[];
  readonly devices: readonly string[];
  readonly execFromRoots: boolean;
  readonly network: boolean;
  /** Undefined: the host's own user. */
  readonly user: { readonly uid: number; readonly gid: number } | undefined;
  /** In the policy's folders the dedicated user acts as their owner. A user the operator chose is just that user. */
  readonly actsAsOwner: boolean;
  readonly scratchBytes: number;
  /** What the policy opens and this confinement does not, for the operator. */
  readonly notes: readonly string[];
  /** Device and inode of each folder: another folder at the same path needs another supervisor. */
  readonly identity: string;
}

/** Ways to leave out for tests: each falls back to the next best, and the report must say so. */
export interface Without {
  readonly view?: boolean;
  readonly proc?: boolean;
  readonly ownerMapping?: boolean;
  readonly landlock?: boolean;
  readonly seccomp?: boolean;
  readonly pidNamespace?: boolean;
  readonly userNamespace?: boolean;
  readonly native?: boolean;
  readonly cgroup?: boolean;
  readonly bubblewrap?: boolean;
}

export interface Protections {
  /** Which files a command can reach is decided by: */
  readonly files: "view+landlock" | "view" | "landlock" | "bubblewrap" | "none";
  readonly network: "open" | "namespace+seccomp" | "namespace" | "seccomp" | "not restricted";
  /** How every descendant is found when it must go. */
  readonly processTree: "pid-namespace" | "cgroup" | "subreaper" | "process-group";
  readonly seccomp: boolean;
  readonly noNewPrivileges: boolean;
  readonly user: number | "same";
  readonly rlimits: boolean;
  readonly cgroup: readonly string[];
  readonly parentDeathSignal: boolean;
  /** What was tried and refused, for the operator. */
  readonly notes: readonly string[];
  /** What the way in force leaves open or takes away that a better one would not. */
  readonly gaps: readonly string[];
  /** Mounted below the policy's folders, and not kept out. */
  readonly openMounts: readonly string[];
}

const MAX_NAMED = 3;

/** What `sandbox: required` asks for and this machine does not give. */
export function missingProtections(have: Protections, network: boolean): string[] {
  const missing: string[] = [];
  if (have.files === "none") missing.push("file-system confinement (Landlock, a mount namespace or bubblewrap)");
  // Landlock looks at neither modes nor sockets nor signals.
  if (have.files === "landlock" && !have.seccomp) missing.push("seccomp beside Landlock");
  if (have.openMounts.length > 0) {
    const named = have.openMounts.slice(0, MAX_NAMED).join(", ");
    missing.push(`a view that keeps out what is mounted below the policy's folders (${named}); Landlock alone cannot`);
  }
  if (!network && have.network === "not restricted") missing.push("network isolation (seccomp or a network namespace)");
  if (have.processTree === "process-group")
    missing.push("a way to end every descendant (PID namespace, cgroup or subreaper)");
  if (!have.noNewPrivileges) missing.push("no_new_privs");
  return missing;
}

export const SCRATCH = "/portcullis-scratch";
