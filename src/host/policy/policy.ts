// A loaded policy. It is frozen: a reload makes another one and swaps the reference, so no call ever sees half of each.

import { createHash } from "node:crypto";
import { basename } from "node:path";
import type { LocatedPlace } from "../paths/locate.js";
import { isWithin } from "../paths/mounts.js";
import type { WritableRoot } from "../paths/target.js";
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
  readonly readableRoots: readonly LocatedPlace[];
  readonly writableRoots: readonly WritableRoot[];
  readonly commands: ReadonlyMap<string, Command>;
  /** Ids that exist but not on this platform, with the platforms they are for. */
  readonly otherPlatforms: ReadonlyMap<string, string>;
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

// What the write rules mean for commands. A command is held by the kernel, which knows whole directories and one size for every
// file; what of a rule cannot be said that way is not left to the command's good will: it cannot write there at all.

/** "This directory but none below it" and "replace but never create" hold for fs.write only. */
export function isOpenToCommands({ recursive, createIfMissing }: WritableRoot): boolean {
  return recursive && createIfMissing;
}

/** Writable roots with a rule of their own inside one that is open: the stricter rule holds there. */
export function closedInside(writableRoots: readonly WritableRoot[]): WritableRoot[] {
  const open = writableRoots.filter(isOpenToCommands);
  return writableRoots.filter(
    (writableRoot) => !isOpenToCommands(writableRoot) && open.some((outer) => isWithin(writableRoot.path, outer.path)),
  );
}

/** One number holds for all files of a process, so the strictest writable root sets it. Undefined: there is nothing to write. */
export function largestFile(writableRoots: readonly WritableRoot[]): number | undefined {
  const sizes = writableRoots.filter(isOpenToCommands).map((writableRoot) => writableRoot.maxFileBytes);
  return sizes.length === 0 ? undefined : Math.min(...sizes);
}

/** A program called git is nearly always meant to write there. */
export function repositoryNotices(writableRoots: readonly WritableRoot[], commands: Iterable<Command>): string[] {
  const isClosed = writableRoots.some(
    (writableRoot) => isOpenToCommands(writableRoot) && !writableRoot.repositoryInternals,
  );
  const writers = [...commands].filter((command) => command.profile === undefined && isGit(command));
  return (isClosed ? writers : []).map(
    ({ id, origin }) =>
      `command ${id} (${origin}) cannot commit or change settings: repositories are closed to commands unless a write rule says repositoryInternals: true`,
  );
}

export function isGit(command: Command): boolean {
  return command.profile?.name === "git" || basename(command.executable.real) === "git";
}

/** Reported when the policy is loaded, so that it is not found out by a command that fails. */
export function writeNotices(writableRoots: readonly WritableRoot[]): string[] {
  const closed = writableRoots
    .filter((writableRoot) => !isOpenToCommands(writableRoot))
    .map(
      ({ written, origin }) =>
        `writeRules ${written} (${origin}) holds for fs.write; commands cannot write there unless it says recursive: true and createIfMissing: true`,
    );
  const size = largestFile(writableRoots);
  const isTighter = writableRoots.some(
    (writableRoot) => isOpenToCommands(writableRoot) && writableRoot.maxFileBytes !== size,
  );
  return isTighter
    ? [
        ...closed,
        `commands write files of at most ${size} bytes, the smallest maxFileBytes of the writable roots open to them`,
      ]
    : closed;
}

// The policy's fingerprint: SHA-256 over its canonical JSON. Comments, order of keys and spelled-out defaults do not
// change it; anything that can change a decision does.

/** RFC 8785 for the data a policy holds: strings, whole numbers, booleans, lists, maps. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, v]) => v !== undefined);
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([k, v]) => `${JSON.stringify(k)}:${canonicalJson(v)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

export function policyHash(document: unknown): string {
  return createHash("sha256").update(canonicalJson(document)).digest("hex");
}
