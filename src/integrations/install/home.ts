// Versions as releases carry them: three numbers and perhaps a pre-release, ordered as semver orders them.

import { readFileSync } from "node:fs";
import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join, posix, win32 } from "node:path";
import { CliError } from "../../lib/exit.js";

const SHAPE = /^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?$/;
const MAX_LENGTH = 64;

export function isVersion(text: unknown): text is string {
  return typeof text === "string" && text.length <= MAX_LENGTH && SHAPE.test(text);
}

/** Negative when `a` is older than `b`, 0 when they are the same. Both must be versions. */
export function compareVersions(a: string, b: string): number {
  const [, ...left] = SHAPE.exec(a) as unknown as string[];
  const [, ...right] = SHAPE.exec(b) as unknown as string[];
  for (let index = 0; index < 3; index += 1) {
    const difference = Number(left[index]) - Number(right[index]);
    if (difference !== 0) return difference;
  }
  return comparePre(left[3], right[3]);
}

function comparePre(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0;
  // What is not a pre-release comes after all of its pre-releases.
  if (a === undefined) return 1;
  if (b === undefined) return -1;
  const left = a.split(".");
  const right = b.split(".");
  for (let index = 0; index < Math.max(left.length, right.length); index += 1) {
    const difference = comparePart(left[index], right[index]);
    if (difference !== 0) return difference;
  }
  return 0;
}

function comparePart(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0;
  if (a === undefined) return -1;
  if (b === undefined) return 1;
  const numeric = [a, b].map((part) => /^\d+$/.test(part));
  if (numeric[0] && numeric[1]) return Number(a) - Number(b);
  if (numeric[0] !== numeric[1]) return numeric[0] ? -1 : 1;
  return a < b ? -1 : 1;
}

export const CHANNELS = ["stable", "beta"] as const;
export type ReleaseChannel = (typeof CHANNELS)[number];

export interface Home {
  readonly root: string;
  readonly shim: string;
  readonly versions: string;
  readonly staging: string;
}

interface Installed {
  readonly channel: ReleaseChannel;
  readonly previous?: string | undefined;
  /** The highest version that was seen to work: older offers are refused. */
  readonly highest?: string | undefined;
  /** A version that was switched to and has not answered yet. */
  readonly unproven?: string | undefined;
}

/** How many versions stay on the disk. */
const KEEP = 3;
const MAX_RECORD_BYTES = 16 * 1024;

/** The platform's directory for programs of one user. */
export function defaultRoot(platform: string, env: NodeJS.ProcessEnv, userHome = homedir()): string {
  switch (platform) {
    case "win32":
      return win32.join(env.LOCALAPPDATA || win32.join(userHome, "AppData", "Local"), "portcullis");
    case "darwin":
      return posix.join(userHome, "Library", "Application Support", "portcullis");
    default: {
      // The XDG rules: a value that is not absolute does not count.
      const data = env.XDG_DATA_HOME;
      return posix.join(data?.startsWith("/") ? data : posix.join(userHome, ".local", "share"), "portcullis");
    }
  }
}

export function homeAt(root: string): Home {
  const shim = join(root, "bin", process.platform === "win32" ? "portcullis.cmd" : "portcullis");
  return { root, shim, versions: join(root, "versions"), staging: join(root, "staging") };
}

export function entryOf(home: Home, version: string): string {
  return join(home.versions, version, "dist", "cli", "main.js");
}

export function currentVersion(home: Home): string | undefined {
  const text = readSmall(join(home.root, "current"))?.trim();
  if (text === undefined) return undefined;
  if (isVersion(text)) return text;
  throw new CliError(`${join(home.root, "current")} names no version`, 1, "remove the file and install again");
}

export function readInstalled(home: Home): Installed {
  const path = join(home.root, "installed.json");
  const text = readSmall(path);
  if (text === undefined) return { channel: "stable" };
  try {
    const { channel, previous, highest, unproven } = JSON.parse(text) as Installed;
    const versions = [previous, highest, unproven].every((value) => value === undefined || isVersion(value));
    if (CHANNELS.includes(channel) && versions) return { channel, previous, highest, unproven };
  } catch {
    // Reported below.
  }
  throw new CliError(`${path} cannot be understood`, 1, "remove the file and install again");
}

export async function writeInstalled(home: Home, installed: Installed): Promise<void> {
  await replaceInstalledFile(join(home.root, "installed.json"), `${JSON.stringify(installed, null, 2)}\n`);
}

/** The one moment at which another version takes over. */
export async function switchTo(home: Home, version: string | undefined): Promise<void> {
  const path = join(home.root, "current");
  if (version === undefined) await rm(path, { force: true });
  else await replaceInstalledFile(path, `${version}\n`);
}

/** Readers see the old file or the new one, also after a loss of power. */
export async function replaceInstalledFile(path: string, text: string, mode = 0o644): Promise<void> {
  const next = join(dirname(path), `.${basename(path)}.next`);
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  await rm(next, { force: true });
  const file = await open(next, "wx", mode);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(next, path);
  await syncDirectory(dirname(path));
}

export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a directory; there the rename alone has to do.
  if (process.platform === "win32") return;
  const directory = await open(path, "r");
  await directory.sync().finally(() => directory.close());
}

export async function emptyStaging(home: Home): Promise<void> {
  await rm(home.staging, { recursive: true, force: true });
  await mkdir(home.staging, { recursive: true, mode: 0o700 });
}

/** Old versions go, never one that could still be needed. */
export async function prune(home: Home, keep: readonly (string | undefined)[]): Promise<void> {
  const names = (await readdir(home.versions)).filter(isVersion).sort((a, b) => compareVersions(b, a));
  const spare = names.filter((name) => !keep.includes(name));
  const kept = names.length - spare.length;
  for (const name of spare.slice(Math.max(0, KEEP - kept))) {
    await rm(join(home.versions, name), { recursive: true, force: true });
  }
}

function readSmall(path: string): string | undefined {
  try {
    const text = readFileSync(path, "utf8");
    return text.length <= MAX_RECORD_BYTES ? text : "";
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
