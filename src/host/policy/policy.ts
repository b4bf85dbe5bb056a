// A loaded policy. It is frozen: a reload makes another one and swaps the reference, so no call ever sees half of each.

import type { LocatedPlace, Zone } from "../paths/index.js";
import type { Profile } from "../profiles/index.js";
import type { LimitsDocument, LoggingDocument, SandboxMode } from "./document.js";
import type { Executable } from "./executable.js";
import type { ArgumentPattern } from "./patterns.js";

export interface ProcessLimits {
  readonly maxMemoryBytes: number;
  readonly maxProcesses: number;
  readonly maxOpenFiles: number;
  /** Undefined: follows from the timeout. */
  readonly maxCpuSeconds: number | undefined;
}

export interface Command {
  readonly id: string;
  /** `policy.yaml:31`, for messages to operators. */
  readonly origin: string;
  readonly description: string | undefined;
  readonly executable: Executable;
  readonly profile: Profile | undefined;
  /** Undefined with a profile alone: then the profile's grammar decides. */
  readonly allow: ReadonlySet<string> | undefined;
  readonly fixed: readonly string[];
  readonly patterns: readonly ArgumentPattern[];
  readonly cwdPolicy: "withinRoot" | "fixed" | "none";
  readonly cwd: LocatedPlace | undefined;
  readonly envAllowlist: ReadonlySet<string>;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly network: boolean;
  readonly sandbox: SandboxMode;
  readonly mounts: readonly string[];
  readonly execFromRoots: boolean;
  readonly limits: ProcessLimits;
}

export interface Policy {
  readonly file: string;
  readonly hash: string;
  /** Whose profile this is; undefined for everyone else. */
  readonly client: string | undefined;
  readonly platform: NodeJS.Platform;
  readonly home: string;
  readonly denyNetworkFS: boolean;
  readonly hardLinks: "deny" | "allow";
  readonly roots: readonly LocatedPlace[];
  readonly zones: readonly Zone[];
  readonly commands: ReadonlyMap<string, Command>;
  /** Ids that exist but not on this platform, with the platforms they are for. */
  readonly elsewhere: ReadonlyMap<string, string>;
  readonly sandbox: SandboxMode;
  readonly runAs: { readonly uid: number; readonly gid: number } | undefined;
  readonly limits: LimitsDocument;
  readonly logging: LoggingDocument;
  /** True but harmless: a root that is for another platform. */
  readonly notices: readonly string[];
  readonly clients: ReadonlyMap<string, Policy>;
}

/** The policy for one client, as identity knows it. */
export function policyFor(policy: Policy, client: string | undefined): Policy {
  return (client === undefined ? undefined : policy.clients.get(client)) ?? policy;
}
