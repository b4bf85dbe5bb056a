// Install, update, roll back. The order is the promise: signature, version, checksum and contents are checked before
// the first thing that counts is touched; then one rename switches; then the new version has to answer, or it goes.

import { existsSync, readFileSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { CliError } from "../../lib/exit.js";
import { ArchiveInvalid, unpack } from "../../lib/unpack.js";
import { checkUrl, fetchBytes, fetchFile } from "./download.js";
import { whyUnhealthy } from "./health.js";
import {
  compareVersions,
  currentVersion,
  emptyStaging,
  entryOf,
  type Home,
  isVersion,
  prune,
  type ReleaseChannel,
  readInstalled,
  replaceInstalledFile,
  switchTo,
  syncDirectory,
  writeInstalled,
} from "./home.js";
import {
  archiveName,
  MAX_SIGNATURE_BYTES,
  MAX_SUMS_BYTES,
  type Release,
  type ReleaseKey,
  readRelease,
  SIGNATURE,
  SUMS,
} from "./release.js";

export interface Source {
  readonly url: string;
  readonly key: ReleaseKey;
  readonly channel: ReleaseChannel;
  readonly allowDowngrade: boolean;
  /** How long a version may take to answer after the switch. */
  readonly healthTimeoutMs: number;
}

interface Offer {
  readonly release: Release;
  readonly directory: URL;
}

interface InstallChange {
  readonly from: string | undefined;
  readonly to: string;
}

const MAX_INDEX_BYTES = 16 * 1024;

/** What the server offers, with its signature checked. Changes nothing. */
export async function look(source: Source): Promise<Offer> {
  const base = checkUrl(source.url.endsWith("/") ? source.url : `${source.url}/`);
  const index = new URL(`${source.channel}.json`, base);
  const { version, path } = parseIndex(await fetchBytes(index, MAX_INDEX_BYTES), index);
  const directory = checkUrl(path ?? `${version}/`, index.href);
  const sums = await fetchBytes(new URL(SUMS, directory), MAX_SUMS_BYTES);
  const signature = await fetchBytes(new URL(SIGNATURE, directory), MAX_SIGNATURE_BYTES);
  const release = readRelease(sums, signature, source.key);
  if (release.version !== version) {
    throw new CliError(`the server offers ${version}, but what is signed there is ${release.version}: refused`);
  }
  if (source.channel === "stable" && release.channel !== "stable") {
    throw new CliError(`${version} is signed for ${release.channel}, not for ${source.channel}: refused`);
  }
  return { release, directory };
}

function parseIndex(bytes: Buffer, url: URL): { version: string; path?: string } {
  try {
    const { version, path } = JSON.parse(bytes.toString("utf8")) as Record<string, unknown>;
    if (isVersion(version) && (path === undefined || typeof path === "string")) {
      return path === undefined ? { version } : { version, path };
    }
  } catch {
    // Reported below.
  }
  throw new CliError(`${url.href} is not a release index: expected {"version": "1.2.3"}`);
}

/** Brings in the offered version; undefined when it is the one that runs. Call it under the lock. */
export async function bringIn(home: Home, source: Source, offer: Offer): Promise<InstallChange | undefined> {
  const { release, directory } = offer;
  await settle(home, source.healthTimeoutMs);
  const from = currentVersion(home);
  const installed = readInstalled(home);
  refuseDowngrade(release.version, installed.highest ?? from, source.allowDowngrade);
  if (release.version === from && existsSync(home.shim)) {
    const why = await whyUnhealthy(home, from, source.healthTimeoutMs);
    if (why === undefined) {
      if (installed.channel !== source.channel) await writeInstalled(home, { ...installed, channel: source.channel });
      return undefined;
    }
  }
  await fetchVersion(home, release, directory);
  if (!existsSync(home.shim)) await writeShim(home);
  await activate(home, release.version, source);
  return { from, to: release.version };
}

function refuseDowngrade(offered: string, known: string | undefined, allowed: boolean): void {
  if (allowed || known === undefined || compareVersions(offered, known) >= 0) return;
  throw new CliError(
    `the server offers ${offered}, which is older than ${known}: refused`,
    1,
    "an old release may be offered to bring back an old fault; --allow-downgrade takes it all the same",
  );
}

/** Downloads, compares, unpacks and looks inside; only then does the directory get its name. */
async function fetchVersion(home: Home, release: Release, directory: URL): Promise<void> {
  const name = archiveName(release.version);
  const expected = release.sums.get(name);
  if (expected === undefined) {
    throw new CliError(`release ${release.version} has no archive for this machine (${name})`);
  }
  await emptyStaging(home);
  try {
    const archive = join(home.staging, "archive.tar.gz");
    const actual = await fetchFile(new URL(name, directory), archive);
    if (actual !== expected) {
      throw new CliError(`${name} is not what was signed (SHA-256 ${actual}, signed ${expected}): refused`);
    }
    const unpacked = join(home.staging, "unpacked");
    await unpack(archive, unpacked, `portcullis-${release.version}`);
    checkContents(unpacked, release.version);
    const place = join(home.versions, release.version);
    await mkdir(home.versions, { recursive: true, mode: 0o755 });
    // Only a version that does not work is ever replaced by itself.
    if (existsSync(place)) await rename(place, join(home.staging, "old"));
    await rename(unpacked, place);
    await syncDirectory(home.versions);
  } finally {
    await rm(home.staging, { recursive: true, force: true });
  }
}

function checkContents(directory: string, version: string): void {
  const path = join(directory, "package.json");
  const { name, version: inside } = existsSync(path)
    ? (JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>)
    : {};
  if (name !== "portcullis" || inside !== version || !existsSync(join(directory, "dist", "cli", "main.js"))) {
    throw new ArchiveInvalid(`it does not hold version ${version} of portcullis`);
  }
}

async function writeShim(home: Home): Promise<void> {
  await replaceInstalledFile(home.shim, shimText(process.platform, home.root, process.execPath), 0o755);
}

/** Switches, and switches back when the new version does not answer. */
async function activate(home: Home, version: string, { channel, healthTimeoutMs }: Source): Promise<void> {
  const before = readInstalled(home);
  const from = currentVersion(home);
  const previous = from === version ? before.previous : from;
  // Written first: after a crash, the next run checks this version.
  await writeInstalled(home, { ...before, previous, unproven: version });
  await switchTo(home, version);
  const why = await whyUnhealthy(home, version, healthTimeoutMs);
  if (why !== undefined) {
    const to = previous !== version && isPresent(home, previous) ? previous : undefined;
    await goBack(home, before, version, to);
    const now = to === undefined ? "nothing is installed now" : `${to} is back in place`;
    throw new CliError(`version ${version} does not work, and ${now}: ${why}`);
  }
  const highest =
    before.highest !== undefined && compareVersions(before.highest, version) > 0 ? before.highest : version;
  await writeInstalled(home, { channel, previous, highest });
  await prune(home, [version, previous]);
}

async function goBack(
  home: Home,
  before: Parameters<typeof writeInstalled>[1],
  bad: string,
  to?: string,
): Promise<void> {
  await switchTo(home, to);
  await writeInstalled(home, { ...before, unproven: undefined });
  await rm(join(home.versions, bad), { recursive: true, force: true });
}

/** A run that was killed after its switch left a version that has not been checked. */
async function settle(home: Home, healthTimeoutMs: number): Promise<void> {
  const { unproven, ...rest } = readInstalled(home);
  if (unproven === undefined) return;
  const current = currentVersion(home);
  if (current === unproven && (await whyUnhealthy(home, unproven, healthTimeoutMs)) !== undefined) {
    const to = rest.previous !== unproven && isPresent(home, rest.previous) ? rest.previous : undefined;
    return goBack(home, { ...rest, previous: undefined }, unproven, to);
  }
  await writeInstalled(home, rest);
}

/** Back to the version before. Call it under the lock. */
export async function rollBack(home: Home, healthTimeoutMs: number): Promise<InstallChange> {
  await settle(home, healthTimeoutMs);
  const from = currentVersion(home);
  const installed = readInstalled(home);
  const { previous } = installed;
  if (from === undefined || previous === undefined || !isPresent(home, previous)) {
    throw new CliError("there is no earlier version to go back to");
  }
  const turned = { ...installed, previous: from };
  await writeInstalled(home, { ...turned, unproven: previous });
  await switchTo(home, previous);
  const why = await whyUnhealthy(home, previous, healthTimeoutMs);
  if (why !== undefined) {
    await switchTo(home, from);
    await writeInstalled(home, installed);
    throw new CliError(`version ${previous} does not work either, so ${from} stays: ${why}`);
  }
  await writeInstalled(home, turned);
  return { from, to: previous };
}

function isPresent(home: Home, version: string | undefined): version is string {
  return version !== undefined && existsSync(entryOf(home, version));
}

export function shimText(platform: string, root: string, node: string): string {
  return platform === "win32" ? cmdShim(node) : shellShim(root, node);
}

function shellShim(root: string, node: string): string {
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  return `#!/bin/sh
# Starts the version of Portcullis that \`current\` names. Written by \`portcullis install\`.
home=${quote(root)}
node=${quote(node)}
version=
[ -r "$home/current" ] && read -r version < "$home/current"
case "$version" in
  [0-9]*) ;;
  *) echo "portcullis: $home/current names no version; install again" >&2; exit 1 ;;
esac
[ -x "$node" ] || node=node
exec "$node" "$home/versions/$version/dist/cli/main.js" "$@"
`;
}

function cmdShim(node: string): string {
  return [
    "@echo off",
    "setlocal",
    "set version=",
    `set /p version=<"%~dp0..\\current"`,
    `set "node=${node.replaceAll("%", "%%")}"`,
    `if not exist "%node%" set "node=node"`,
    `"%node%" "%~dp0..\\versions\\%version%\\dist\\cli\\main.js" %*`,
    "exit /b %errorlevel%",
    "",
  ].join("\r\n");
}
