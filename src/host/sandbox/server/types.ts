// What the gateway and the launcher of a stdio server say to each other.

import type { SandboxMode } from "../../policy/document.js";
import type { HomePlan } from "../confine/cover.js";
import type { Ids } from "../confine/privileges.js";
import type { Without } from "../confinement.js";

/** `ServerSandbox` is what a gateway asks for when it starts a stdio server. */
export interface ServerSandbox {
  readonly mode: SandboxMode;
  /** Files and directories of the gateway that no server may see. */
  readonly hidden: readonly string[];
  /** Files and directories that servers may read and never change, besides those of the system. */
  readonly readOnly: readonly string[];
  /** The gateway's directory for this server. What the server adds to the user's home directory is kept there. */
  readonly store?: string;
  /** Ways to leave out, for tests. */
  readonly without?: Pick<Without, "view" | "pidNamespace" | "native">;
}

/** `ServerProtections` states what is in force for one running server. */
export interface ServerProtections {
  readonly mode: SandboxMode;
  /** What keeps the gateway's files out of reach. */
  readonly files: "mount-namespace" | "landlock" | "none";
  /** What keeps other processes out of reach. */
  readonly processes: "pid-namespace" | "landlock" | "none";
  readonly user: number | "same";
  readonly seccomp: boolean;
  readonly noNewPrivileges: boolean;
  /** What was tried and refused by the machine. */
  readonly notes: readonly string[];
  /** What stays open, or stops working, with the protections in force. */
  readonly gaps: readonly string[];
}

export interface ServerCommand {
  /** The program, found; then its arguments. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

/** `ServerPlan` lists the paths that a server does not see, sees read-only, or keeps. */
export interface ServerPlan {
  readonly hidden: readonly string[];
  readonly readOnly: readonly string[];
  /** Paths inside hidden or read-only directories that the server's entry names: they stay as they are. */
  readonly own: readonly string[];
  /** Undefined where the server's entry names the home directory itself, or there is no store for it. */
  readonly splitHome: HomePlan | undefined;
  /** Start-up files that do not exist: where only Landlock holds, they cannot be made. */
  readonly absent: readonly string[];
}

/** `LaunchMessage` is the one line that the launcher reads from `LAUNCH_FD`. */
export interface LaunchMessage extends ServerCommand, ServerPlan {
  readonly mode: SandboxMode;
  /** Undefined: the gateway's own user. */
  readonly user: Ids | undefined;
  /** The launcher is the first process of a PID namespace. */
  readonly inPidNamespace: boolean;
  readonly inUserNamespace: boolean;
  /** Mount namespaces are not tried; for tests. */
  readonly withoutMounts: boolean;
}

/** The launcher's one answer, just before it becomes the server. */
export type LaunchReport =
  | { readonly kind: "ready"; readonly protections: ServerProtections }
  | { readonly kind: "refused"; readonly reason: string };

export const LAUNCH_FD = 3;

/** `missingForServer` lists what `sandbox: required` asks for and `have` does not hold. */
export function missingForServer(have: Omit<ServerProtections, "mode">, isRoot: boolean): string[] {
  const missing: string[] = [];
  if (have.files === "none") missing.push("a mount namespace or Landlock");
  if (have.processes === "none") missing.push("a PID namespace or Landlock (Linux 6.12)");
  if (!have.seccomp) missing.push("seccomp");
  if (!have.noNewPrivileges) missing.push("no_new_privs");
  if (isRoot && have.user === "same") missing.push("a user other than root");
  return missing;
}
