// From a policy and one of its commands to the confinement it runs in and the environment it sees.

import { lstatSync, opendirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, join } from "node:path";
import { isNetworkType, isWithin, mountOf, readMounts } from "../jail/index.js";
import { closedInside, type Command, isOpenToCommands, largestFile, type Policy } from "../policy/index.js";
import type { Confinement } from "./confinement.js";
import type { LaunchLimits } from "./launchers.js";
import { DEVICES, NETWORK_FILES, SYSTEM_FILES, SYSTEM_FOLDERS } from "./system-paths.js";

/** The sandbox's own user when root starts the host: a number that no distribution hands out to anyone. */
const SANDBOX_ID = 61_953;

const SCRATCH_BYTES = 256_000_000;

export function confinementOf(asWritten: Policy, command: Command): Confinement {
  const policy = withoutRemote(asWritten);
  const zones = presentZones(policy);
  const closed = closedInside(policy.zones).map((zone) => zone.path);
  const own = command.cwd === undefined ? [] : [command.cwd.path];
  // A root inside a zone is shown with the zone; by itself it would be read-only there.
  const roots = [...new Set([...policy.roots.map((root) => root.path), ...own])].filter(
    (root) => !zones.some((zone) => isWithin(root, zone)),
  );
  const repositories = isGit(command) ? [] : repositoriesIn(policy);
  const folders = [...roots, ...policy.zones.map((zone) => zone.path), ...repositories];
  const isRoot = process.geteuid?.() === 0;
  return {
    mode: command.sandbox,
    roots,
    zones,
    closed: closed.filter((path) => identityOf(path) !== "absent"),
    repositories,
    system: [...SYSTEM_FOLDERS, ...command.mounts, ...ownProgram(command)],
    files: [...SYSTEM_FILES, ...(command.network ? NETWORK_FILES : [])],
    devices: DEVICES,
    execFromRoots: command.execFromRoots,
    network: command.network,
    user: isRoot
      ? (policy.runAs ?? (command.sandbox === "off" ? undefined : { uid: SANDBOX_ID, gid: SANDBOX_ID }))
      : undefined,
    actsAsOwner: isRoot && policy.runAs === undefined,
    scratchBytes: SCRATCH_BYTES,
    identity: folders.map(identityOf).join(" "),
  };
}

/** A network file system may have been mounted over a folder since. Only the table is asked: the folder may hang. */
function withoutRemote(policy: Policy): Policy {
  if (!policy.denyNetworkFS || policy.platform !== "linux") return policy;
  const mounts = readMounts();
  const isLocal = ({ path }: { readonly path: string }): boolean =>
    !isNetworkType(mountOf(path, mounts)?.type ?? "unknown");
  return { ...policy, roots: policy.roots.filter(isLocal), zones: policy.zones.filter(isLocal) };
}

function presentZones(policy: Policy): string[] {
  const open = policy.zones.filter(isOpenToCommands).map((zone) => zone.path);
  return [...new Set(open)].filter((path) => identityOf(path) !== "absent");
}

/** Hooks and settings of a repository are programs that its owner's own git runs, outside any sandbox. */
function repositoriesIn(policy: Policy): string[] {
  return policy.zones
    .filter((zone) => isOpenToCommands(zone) && !zone.repositoryInternals)
    .flatMap((zone) => [zone.path, ...foldersIn(zone.path)])
    .flatMap((folder) => [join(folder, ".git"), join(folder, ".hg")])
    .filter((path) => identityOf(path) !== "absent");
}

/** Names looked at in a zone for a repository each; this is asked before every command. */
const MAX_NAMES = 256;

function foldersIn(path: string): string[] {
  const folders: string[] = [];
  try {
    const names = opendirSync(path);
    try {
      for (let i = 0; i < MAX_NAMES; i++) {
        const entry = names.readSync();
        if (entry === null) break;
        if (entry.isDirectory() && !INTERNAL_FOLDERS.has(entry.name)) folders.push(join(path, entry.name));
      }
    } finally {
      names.closeSync();
    }
  } catch {
    // Absent, or closed to us: then there is nothing to show either.
  }
  return folders.sort();
}

const INTERNAL_FOLDERS = new Set([".git", ".hg"]);

function isGit(command: Command): boolean {
  return command.profile?.name === "git" || basename(command.executable.real) === "git";
}

/** A program outside the system's folders is shown by itself; what else it needs stands under `mounts`. */
function ownProgram(command: Command): string[] {
  const shown = [command.executable.real, command.executable.path];
  return [...new Set(shown)].filter((path) => !SYSTEM_FOLDERS.some((folder) => isWithin(path, folder)));
}

function identityOf(path: string): string {
  const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? "absent" : `${stats.dev}:${stats.ino}`;
}

export function launchLimitsOf(policy: Policy, command: Command, timeoutMs: number): Omit<LaunchLimits, "processes"> {
  const { limits } = command;
  return {
    ...limits,
    maxFileBytes: largestFile(policy.zones) ?? SCRATCH_BYTES,
    cpuSeconds: limits.maxCpuSeconds ?? Math.ceil(timeoutMs / 1000) * availableParallelism() + 1,
    limitAddressSpace: command.profile?.reservesAddressSpace !== true,
  };
}

/** Nothing of the host's environment is in it. What a profile fixes comes last and so cannot be overridden. */
export function environmentOf(
  policy: Policy,
  command: Command,
  asked: ReadonlyMap<string, string>,
  changesUser: boolean,
  scratch: string,
): Record<string, string> {
  return {
    ...(policy.platform === "win32" ? windowsBase(scratch) : unixBase(command, scratch)),
    ...gitDefaults(policy, command, changesUser),
    ...Object.fromEntries(asked),
    ...command.profile?.env,
  };
}

function unixBase(command: Command, scratch: string): Record<string, string> {
  return { PATH: programFolders(command).join(":"), HOME: scratch, TMPDIR: scratch, LANG: "C.UTF-8" };
}

/** A program outside the system's folders finds its own companions (npm its node), where `mounts` shows them. */
export function programFolders({ executable }: Command): string[] {
  const own = SYSTEM_FOLDERS.some((folder) => isWithin(executable.path, folder)) ? [] : [dirname(executable.path)];
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
function gitDefaults(policy: Policy, command: Command, changesUser: boolean): Record<string, string> {
  if (!isGit(command) && !command.execFromRoots) return {};
  const trust = { GIT_CONFIG_COUNT: "1", GIT_CONFIG_KEY_0: "safe.directory", GIT_CONFIG_VALUE_0: "*" };
  return {
    // A settings file that exists but cannot be read is an error to git, one that is not looked for is none.
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CEILING_DIRECTORIES: policy.roots.map((root) => dirname(root.path)).join(":"),
    ...(changesUser ? trust : {}),
  };
}
