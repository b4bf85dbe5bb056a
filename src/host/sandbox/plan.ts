// From a policy and one of its commands to the confinement it runs in and the environment it sees.

import { lstatSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname } from "node:path";
import { isNetworkType, isWithin, mountOf, readMounts } from "../paths/mounts.js";
import { directoriesAbove, findRepositories } from "../paths/repositories.js";
import { type Command, closedInside, isGit, isOpenToCommands, largestFile, type Policy } from "../policy/policy.js";
import { type Confinement, DEVICES, NETWORK_FILES, SYSTEM_DIRECTORIES, SYSTEM_FILES } from "./confinement.js";
import type { LaunchLimits } from "./launchers.js";

/** The sandbox's own user when root starts the host: a number that no distribution hands out to anyone. */
const SANDBOX_ID = 61_953;
export const SANDBOX_USER = { uid: SANDBOX_ID, gid: SANDBOX_ID };

const SCRATCH_BYTES = 256_000_000;

export function confinementOf(asWritten: Policy, command: Command): Confinement {
  const policy = withoutRemote(asWritten);
  const present = presentWritableRoots(policy);
  const opened = command.profile?.readOnly === true ? NOTHING_OPEN : openIn(policy, present);
  const own = command.cwd === undefined ? [] : [command.cwd.path];
  // A readable root inside a writable one is shown with that; by itself it would be read-only there.
  const readable = [...new Set([...policy.readableRoots.map((root) => root.path), ...own, ...present])];
  const readableRoots = readable.filter((path) => !opened.writableRoots.some((root) => isWithin(path, root)));
  const { repositories, pinned } = opened;
  const shown = [...readableRoots, ...policy.writableRoots.map((root) => root.path), ...repositories, ...pinned];
  const isRoot = process.geteuid?.() === 0;
  return {
    mode: command.sandbox,
    readableRoots,
    ...opened,
    system: [...SYSTEM_DIRECTORIES, ...command.mounts, ...ownProgram(command)],
    files: [...SYSTEM_FILES, ...(command.network ? NETWORK_FILES : [])],
    devices: DEVICES,
    execFromRoots: command.execFromRoots,
    network: command.network,
    user: isRoot ? (policy.runAs ?? (command.sandbox === "off" ? undefined : SANDBOX_USER)) : undefined,
    actsAsOwner: isRoot && policy.runAs === undefined,
    scratchBytes: SCRATCH_BYTES,
    identity: shown.map(identityOf).join(" "),
  };
}

type Opened = Pick<Confinement, "writableRoots" | "closed" | "repositories" | "pinned" | "notes">;

const NOTHING_OPEN: Opened = { writableRoots: [], closed: [], repositories: [], pinned: [], notes: [] };

/** What a command may write, and what stays closed in it. */
function openIn(policy: Policy, present: readonly string[]): Opened {
  const places = new Set(policy.writableRoots.map((root) => root.path));
  const stricter = closedInside(policy.writableRoots)
    .map((root) => root.path)
    .filter((path) => identityOf(path) !== "absent");
  const repositories: string[] = [];
  const unprotected = new Set<string>();
  const notes: string[] = [];
  for (const { path, repositoryInternals } of policy.writableRoots) {
    if (repositoryInternals || !present.includes(path)) continue;
    const found = findRepositories(path, [...places]);
    if (found.kind === "found") repositories.push(...found.paths);
    else {
      unprotected.add(path);
      const remedy = "choose smaller writable roots or set repositoryInternals: true";
      notes.push(`writeRules: ${path} is read-only, because ${found.why}: ${remedy}`);
    }
  }
  const writableRoots = present.filter((path) => !unprotected.has(path));
  const closed = [...stricter, ...unprotected].filter((path) => writableRoots.some((root) => isWithin(path, root)));
  // Renaming a directory above would put another one in the place of what is closed.
  const kept = [...closed, ...repositories, ...writableRoots];
  const pinned = [...new Set(writableRoots.flatMap((root) => directoriesAbove(kept, root)))].filter(
    (path) => !places.has(path) && !closed.some((other) => isWithin(path, other)),
  );
  return { writableRoots, closed, repositories, pinned, notes };
}

/** A network file system may have been mounted over a directory since. Only the table is asked: the directory may hang. */
function withoutRemote(policy: Policy): Policy {
  if (!policy.denyNetworkFS || policy.platform !== "linux") return policy;
  const mounts = readMounts();
  const isLocal = ({ path }: { readonly path: string }): boolean =>
    !isNetworkType(mountOf(path, mounts)?.type ?? "unknown");
  const { readableRoots, writableRoots } = policy;
  return { ...policy, readableRoots: readableRoots.filter(isLocal), writableRoots: writableRoots.filter(isLocal) };
}

function presentWritableRoots(policy: Policy): string[] {
  const open = policy.writableRoots.filter(isOpenToCommands).map((writableRoot) => writableRoot.path);
  return [...new Set(open)].filter((path) => identityOf(path) !== "absent");
}

/** A program outside the system's directories is shown by itself; what else it needs stands under `mounts`. */
function ownProgram(command: Command): string[] {
  const shown = [command.executable.real, command.executable.path];
  return [...new Set(shown)].filter((path) => !SYSTEM_DIRECTORIES.some((directory) => isWithin(path, directory)));
}

/** A number is used again for the next directory; its time of birth is not. */
function identityOf(path: string): string {
  const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? "absent" : `${stats.dev}:${stats.ino}:${stats.birthtimeNs}`;
}

export function launchLimitsOf(policy: Policy, command: Command, timeoutMs: number): Omit<LaunchLimits, "processes"> {
  const { limits } = command;
  return {
    ...limits,
    maxFileBytes: largestFile(policy.writableRoots) ?? SCRATCH_BYTES,
    cpuSeconds: limits.maxCpuSeconds ?? Math.ceil(timeoutMs / 1000) * availableParallelism() + 1,
    limitAddressSpace: command.profile?.reservesAddressSpace !== true,
  };
}

/** GitSettings of git, stronger than those of a repository. */
export type GitSettings = readonly (readonly [key: string, value: string])[];

/** Nothing of the host's environment is in it. What a profile fixes comes last and so cannot be overridden. */
export function environmentOf(
  policy: Policy,
  command: Command,
  asked: ReadonlyMap<string, string>,
  changesUser: boolean,
  scratch: string,
  settings: GitSettings = [],
): Record<string, string> {
  return {
    ...(policy.platform === "win32" ? windowsBase(scratch) : unixBase(command, scratch)),
    ...gitDefaults(policy, command, changesUser, settings),
    ...Object.fromEntries(asked),
    ...command.profile?.env,
  };
}

function unixBase(command: Command, scratch: string): Record<string, string> {
  return { PATH: programDirectories(command).join(":"), HOME: scratch, TMPDIR: scratch, LANG: "C.UTF-8" };
}

/** A program outside the system's directories finds its own companions (npm its node), where `mounts` shows them. */
export function programDirectories({ executable }: Command): string[] {
  const own = SYSTEM_DIRECTORIES.some((directory) => isWithin(executable.path, directory))
    ? []
    : [dirname(executable.path)];
  return [...own, "/usr/local/bin", "/usr/bin", "/bin"];
}

/** Without SystemRoot most Windows programs cannot even load their libraries. */
function windowsBase(scratch: string): Record<string, string> {
  const system = process.env.SystemRoot ?? "C:\\Windows";
  return {
    SystemRoot: system,
    PATH: `${system}\\System32;${system}`,
    USERPROFILE: scratch,
    TEMP: scratch,
    TMP: scratch,
  };
}

/** git refuses repositories of another user, and every repository is, once the command has a user of its own. */
function gitDefaults(
  policy: Policy,
  command: Command,
  changesUser: boolean,
  settings: GitSettings,
): Record<string, string> {
  if (!isGit(command) && !command.execFromRoots) return {};
  const all: GitSettings = [
    ...(changesUser ? [["safe.directory", "*"] as const] : []),
    // A bare repository can be made of ordinary files; package managers use their own by discovery.
    ...(isGit(command) ? [["safe.bareRepository", "explicit"] as const] : []),
    ...settings,
  ];
  return {
    // A settings file that exists but cannot be read is an error to git, one that is not looked for is none.
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CEILING_DIRECTORIES: policy.readableRoots.map((root) => dirname(root.path)).join(":"),
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(
      all.flatMap(([key, value], i) => [
        [`GIT_CONFIG_KEY_${i}`, key],
        [`GIT_CONFIG_VALUE_${i}`, value],
      ]),
    ),
  };
}
