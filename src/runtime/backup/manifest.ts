// What a backup says of itself, and how its files are held against that.

import { createHash } from "node:crypto";
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { isAbsolute, join, normalize } from "node:path";
import { createInterface } from "node:readline";
import { type Verification, verify } from "../../ledger/index.js";
import { CliError } from "../../lib/exit.js";
import { ArchiveInvalid } from "../../lib/unpack.js";
import { type DumpHeader, readDump, StorageError } from "../../storage/index.js";
import { unpackBackup } from "./archive.js";
import { type BackedUpKeys, type DerivedKeys, deriveKeys, isMacOf, openKeys, type SealedKeys } from "./keys.js";

export const MANIFEST = "manifest.json";
export const MANIFEST_MAC = "manifest.mac";
export const STORE = "store.ndjson";
export const KEYS = "keys.json";
const FORMAT = 1;
const USE_ANOTHER = "use another backup";
const UPDATE = "update portcullis to the version that wrote it or a newer one, then restore again";
const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;

export interface BackedUpFile {
  /** Its name in the archive. */
  readonly entry: string;
  /** Relative to the data directory, or to the directory of its ledger. */
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface BackedUpLedger {
  /** Relative to the data directory; absolute for a ledger outside it. */
  readonly path: string;
  /** Host and directory, as the registry in the store has it. */
  readonly place: string;
  readonly origin: string;
  readonly size: number;
  /** Base64 root over these records. */
  readonly root: string;
  /** The last signed checkpoint within them. */
  readonly checkpoint: string;
  /** The last change of the store that was on record before the ledger was copied. */
  readonly recorded: number;
  readonly files: readonly BackedUpFile[];
}

export interface BackupManifest {
  readonly portcullis_backup: 1;
  readonly id: string;
  readonly created_at: string;
  /** Of the program. */
  readonly version: string;
  readonly store: Omit<DumpHeader, "rows"> & Omit<BackedUpFile, "path"> & { readonly rows: number };
  readonly ledgers: readonly BackedUpLedger[];
  /** Ledgers that the store knows and this backup does not have: those of other machines. */
  readonly ledgers_elsewhere: readonly { readonly origin: string; readonly place: string; readonly size: number }[];
  readonly files: readonly BackedUpFile[];
  /** Null when the keys were left out. */
  readonly keys: (Omit<BackedUpFile, "path"> & { readonly names: readonly string[] }) | null;
}

export async function fileFacts(
  directory: string,
  entry: string,
): Promise<{ entry: string; bytes: number; sha256: string }> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of createReadStream(join(directory, entry))) {
    hash.update(chunk as Buffer);
    bytes += (chunk as Buffer).length;
  }
  return { entry, bytes, sha256: hash.digest("hex") };
}

export function linesIn(path: string): AsyncIterable<string> {
  return createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY });
}

export interface CheckedBackup {
  readonly manifest: BackupManifest;
  /** Undefined when there are none, or no passphrase was given. */
  readonly keys: BackedUpKeys | undefined;
  /** Whether the manifest was checked with the passphrase. */
  readonly isAuthenticated: boolean;
}

/** Unpacks a backup into a directory that is not there yet and checks everything in it; errors name the file. */
export async function openBackup(
  file: string,
  directory: string,
  passphrase: string | undefined,
): Promise<CheckedBackup> {
  try {
    await unpackBackup(file, directory);
    return await checkBackup(directory, passphrase);
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof CliError) throw new CliError(`${file}: ${message}`, error.exitCode, error.help);
    if (error instanceof ArchiveInvalid) throw new CliError(`${file}: ${message}`, undefined, USE_ANOTHER);
    if (!(error instanceof StorageError)) throw error;
    const help = error.code === "STORAGE_VERSION" ? UPDATE : USE_ANOTHER;
    throw new CliError(`${file}: ${message}`, undefined, help);
  }
}

async function checkBackup(directory: string, passphrase: string | undefined): Promise<CheckedBackup> {
  const text = readManifest(directory);
  const manifest = parseManifest(text);
  const all = [
    manifest.store,
    ...manifest.ledgers.flatMap((ledger) => ledger.files),
    ...manifest.files,
    ...(manifest.keys ? [manifest.keys] : []),
  ];
  const expected = new Set([MANIFEST, MANIFEST_MAC, ...all.map(({ entry }) => entry)]);
  const extra = entriesIn(directory).find((entry) => !expected.has(entry));
  if (extra !== undefined) throw damaged(`${extra} is not in its manifest`);
  for (const { entry, bytes, sha256 } of all) {
    if (!existsSync(join(directory, entry))) throw damaged(`${entry} is missing`);
    const found = await fileFacts(directory, entry);
    if (found.bytes !== bytes || found.sha256 !== sha256) throw damaged(`${entry} is not what was backed up`);
  }
  const secrets = await checkSecrets(directory, manifest, text, passphrase);
  await checkStore(directory, manifest);
  for (const [i, ledger] of manifest.ledgers.entries()) await checkLedger(ledgerDirectory(directory, i), ledger);
  return { manifest, ...secrets };
}

export function ledgerDirectory(directory: string, index: number): string {
  return join(directory, "ledgers", String(index));
}

function readManifest(directory: string): string {
  const path = join(directory, MANIFEST);
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  if (size === undefined) throw damaged("it has no manifest: it was cut short, or is not a backup");
  if (size > MAX_MANIFEST_BYTES) throw damaged("its manifest is too large");
  return readFileSync(path, "utf8");
}

function parseManifest(text: string): BackupManifest {
  let manifest: BackupManifest;
  try {
    manifest = JSON.parse(text) as BackupManifest;
  } catch {
    throw damaged("its manifest is not JSON");
  }
  if (manifest.portcullis_backup !== FORMAT) {
    const by = typeof manifest.version === "string" ? ` of portcullis ${manifest.version}` : "";
    throw new CliError(`the backup${by} has a form that this version does not know`, undefined, UPDATE);
  }
  const { store, ledgers, files, id } = manifest;
  const isSound =
    typeof id === "string" && /^[0-9a-f]{16,64}$/.test(id) && store && Array.isArray(ledgers) && Array.isArray(files);
  if (!isSound) throw damaged("its manifest is incomplete");
  const relative = [...files, ...ledgers.flatMap((ledger) => ledger.files)];
  const outside = relative.find(({ path }) => !isInside(path));
  if (outside) throw damaged(`${JSON.stringify(outside.path)} leads out of its directory`);
  const odd = ledgers.find(({ path }) => !isAbsolute(path) && !isInside(path));
  if (odd) throw damaged(`${JSON.stringify(odd.path)} leads out of the data directory`);
  return manifest;
}

function isInside(path: unknown): boolean {
  if (typeof path !== "string" || path === "" || path.includes("\0") || path.includes("\\")) return false;
  return !isAbsolute(path) && normalize(path) === path && !path.split("/").includes("..");
}

function entriesIn(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((each) => !each.isDirectory())
    .map((each) =>
      join(each.parentPath, each.name)
        .slice(directory.length + 1)
        .replaceAll("\\", "/"),
    );
}

async function checkSecrets(
  directory: string,
  manifest: BackupManifest,
  text: string,
  passphrase: string | undefined,
): Promise<Pick<CheckedBackup, "keys" | "isAuthenticated">> {
  const nothing = { keys: undefined, isAuthenticated: false };
  if (manifest.keys === null || passphrase === undefined) return nothing;
  const sealed = JSON.parse(readFileSync(join(directory, KEYS), "utf8")) as SealedKeys;
  const derived: DerivedKeys = await deriveKeys(passphrase, sealed);
  const keys = openKeys(sealed, derived, manifest.id);
  const mac = existsSync(join(directory, MANIFEST_MAC))
    ? readFileSync(join(directory, MANIFEST_MAC), "utf8").trim()
    : "";
  if (!isMacOf(mac, derived, text)) throw damaged("its manifest was changed after it was written");
  return { keys, isAuthenticated: true };
}

async function checkStore(directory: string, manifest: BackupManifest): Promise<void> {
  let rows = 0;
  for await (const each of readDump(linesIn(join(directory, STORE)))) {
    if ("table" in each) rows++;
    else if (each.epoch !== manifest.store.epoch || each.level !== manifest.store.level) {
      throw damaged("its copy of the store is not the one in its manifest");
    }
  }
  if (rows !== manifest.store.rows) throw damaged(`its copy of the store has ${rows} rows`);
}

async function checkLedger(directory: string, ledger: BackedUpLedger): Promise<void> {
  const found = await verify(directory);
  const { to, root, problems } = found;
  if (!isSound(found)) throw damaged(`ledger ${ledger.origin}: ${problems[0]?.message}`);
  if (to !== ledger.size || root !== ledger.root) throw damaged(`ledger ${ledger.origin} is not the one backed up`);
}

/** The tiles are left out of a backup: a start computes them again. */
export function isSound({ ok, problems }: Verification): boolean {
  return ok || problems.every(({ kind }) => kind === "tiles");
}

function damaged(why: string): CliError {
  return new CliError(`the backup is damaged: ${why}`, undefined, USE_ANOTHER);
}
