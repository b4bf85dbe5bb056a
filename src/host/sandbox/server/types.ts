// What the gateway and the launcher of a stdio server say to each other.

import type { SandboxMode } from "../../policy/document.js";
import type { HomePlan } from "../confine/cover.js";
import type { Ids } from "../confine/privileges.js";
import type { Confinement, Without } from "../confinement.js";

/** `ServerSandbox` is what a gateway asks for when it starts a stdio server. */
export interface ServerSandbox {
  readonly mode: SandboxMode;
  /** What the server may touch; without, everything that is not the gateway's. */
  readonly profile?: ServerProfile | undefined;
  /** Files and directories of the gateway that no server may see. */
  readonly hidden: readonly string[];
  /** Files and directories that servers may read and never change, besides those of the system. */
  readonly readOnly: readonly string[];
  /** The gateway's directory for this server. What the server adds to the user's home directory is kept there. */
  readonly store?: string;
  /** Ways to leave out, for tests. */
  readonly without?: Pick<Without, "view" | "pidNamespace" | "native">;
}

/** `ServerProfile` names what a server may touch besides its own code, home and /tmp: the rest does not exist for it. */
export interface ServerProfile {
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** `public`: every public host by its name; `on`: the machine's network; a list: these hosts, `name`, `name:port` or `public`. */
  readonly network: "off" | "on" | "public" | readonly string[];
  readonly memoryBytes: number;
  /** Whole processors, as a share of time. */
  readonly processors: number;
  /** Processes and threads. */
  readonly processes: number;
  /** Record which paths it touches. */
  readonly observe?: boolean;
}

/** `StrictPlan` is a profile as the launcher carries it out. */
export interface StrictPlan {
  readonly confinement: Confinement;
  readonly home: string;
  /** Files with another text than the machine's. */
  readonly texts: readonly (readonly [path: string, text: string])[];
  readonly network: "machine" | "hosts" | "off";
  /** On which the launcher listens for the gateway, in the server's own network namespace. */
  readonly ports: readonly number[];
  readonly profile: ServerProfile;
  /** Symbolic links on the way to what the entry and the profile name. */
  readonly links: readonly (readonly [path: string, target: string])[];
  /** Real paths of what the profile names, and of the server's own code. */
  readonly named: readonly string[];
  readonly code: readonly string[];
}

/** Where a server connected to, or tried to. */
export interface Destination {
  readonly host: string;
  /** Undefined: the name was not even resolved. */
  readonly port: number | undefined;
  readonly allowed: boolean;
  readonly count: number;
  /** Its profile does not name it, it is at an address that has to be named, or nothing answered there. */
  readonly refusal?: "profile" | "address" | "connection";
  readonly reason?: string;
}

/** `TouchedPath` is a path that an observed server used or tried to use. */
export interface TouchedPath {
  readonly path: string;
  /** It was opened for writing, made, renamed or removed. */
  readonly isWritten: boolean;
}

/** `ServerProtections` states what is in force for one running server. */
export interface ServerProtections {
  readonly mode: SandboxMode;
  /** What keeps the gateway's files out of reach. */
  readonly files: "view" | "mount-namespace" | "landlock" | "none";
  /** What keeps other processes out of reach. */
  readonly processes: "pid-namespace" | "landlock" | "none";
  readonly user: number | "same";
  readonly seccomp: boolean;
  readonly noNewPrivileges: boolean;
  /** What it can reach: the machine's network, the hosts of its profile, or nothing. */
  readonly network: StrictPlan["network"];
  /** Limits in force. */
  readonly limits: readonly string[];
  readonly profile?: ServerProfile | undefined;
  readonly destinations?: readonly Destination[];
  /** Undefined where the server is not observed. */
  readonly touched?: readonly TouchedPath[] | undefined;
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
  /** Undefined: the machine's tree, with some of it covered. */
  readonly strict: StrictPlan | undefined;
  /** Limits that a cgroup keeps already. */
  readonly limitedByCgroup: readonly string[];
  /** Mount namespaces are not tried; for tests. */
  readonly withoutMounts: boolean;
}

/** Where the server is observed: the launcher's descriptor that reads held calls. It waits until the gateway has it. */
export interface ListenerMessage {
  readonly kind: "listener";
  readonly fd: number;
}

/** The launcher's last message, just before it becomes the server. */
export type LaunchReport =
  | { readonly kind: "ready"; readonly protections: ServerProtections }
  | { readonly kind: "refused"; readonly reason: string };

export const LAUNCH_FD = 3;
/** The port of the gateway's answers to name queries, in the server's own network namespace. */
export const NAME_SERVER = 53;

/** `missingForServer` lists what `sandbox: required` asks for and `have` does not hold. */
export function missingForServer(have: Omit<ServerProtections, "mode">, isRoot: boolean): string[] {
  const missing: string[] = [];
  if (have.files === "none") missing.push("a mount namespace or Landlock");
  if (have.processes === "none") missing.push("a PID namespace or Landlock (Linux 6.12)");
  if (!have.seccomp) missing.push("seccomp");
  if (!have.noNewPrivileges) missing.push("no_new_privs");
  if (have.network === "off" && asksForHosts(have.profile)) missing.push("a network namespace for the profile's hosts");
  if (isRoot && have.user === "same") missing.push("a user other than root");
  return missing;
}

function asksForHosts(profile: ServerProfile | undefined): boolean {
  return profile !== undefined && profile.network !== "off" && profile.network !== "on";
}
