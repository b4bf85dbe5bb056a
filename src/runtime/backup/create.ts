// `portcullis backup`: ledgers first, then the store, so that for every call in a backed-up ledger the store is from the
// same moment or a later one: an approval that a recorded call redeemed is redeemed in the copy of the store.

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createWriteStream, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { readdir, rename } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { finished } from "node:stream/promises";
import { verify } from "../../ledger/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { Storage } from "../../storage/index.js";
import { VERSION } from "../environment.js";
import { placeOf } from "../ledger.js";
import { openWorkDirectory, pack } from "./archive.js";
import { type BackedUpKeys, deriveKeys, macOf, newSalt, sealKeys } from "./keys.js";
import { copyLedger, cutLedger, type LedgerCut, ledgerPath, ledgersBelow } from "./ledgers.js";
import {
  type BackedUpFile,
  type BackedUpLedger,
  type BackupManifest,
  fileFacts,
  isSound,
  KEYS,
  ledgerDirectory,
  MANIFEST,
  MANIFEST_MAC,
  openBackup,
  STORE,
} from "./manifest.js";

interface BackupOptions {
  readonly dataDir: string;
  readonly storage: Storage;
  /** Of a new file. */
  readonly file: string;
  /** Ledgers outside the data directory. */
  readonly ledgers?: readonly string[];
  /** Undefined leaves the keys out. */
  readonly passphrase: string | undefined;
  /** Base64, the current one first. */
  readonly sealKeys: readonly string[];
}

/** Keys of the data directory; the seal key is read where it really is. */
const KEY_FILES = ["operator.token", "metrics.token", "delegation.keys"];
/** What a gateway starts with, besides store, ledgers and keys. */
const FILES = ["policy", "workflow", "connected", "replica", "tools.json"];
const MAX_FILES = 10_000;
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const ATTEMPTS = 10;

export async function createBackup(options: BackupOptions): Promise<BackupManifest> {
  const file = resolve(options.file);
  if (existsSync(file)) throw new CliError(`${file} is there already`, EXIT.usage, "name a new file or a directory");
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const work = openWorkDirectory(file, "part");
  const directory = work.path;
  try {
    const { manifest, entries } = await stage(directory, options);
    await pack(join(directory, "archive"), directory, entries);
    // As a restore will do it: a backup that cannot be restored is not one.
    await openBackup(join(directory, "archive"), join(directory, "read"), options.passphrase);
    await rename(join(directory, "archive"), file);
    return manifest;
  } finally {
    work.close();
  }
}

/** The store alone, before a migration changes it: `portcullis restore` takes it like any other backup. */
export async function backUpStore(file: string, copy: Storage["dumps"]["write"]): Promise<void> {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const work = openWorkDirectory(file, "part");
  const directory = work.path;
  try {
    const manifest: BackupManifest = {
      portcullis_backup: 1,
      id: randomBytes(16).toString("hex"),
      created_at: new Date().toISOString(),
      version: VERSION,
      store: await stageStore(directory, copy),
      ledgers: [],
      ledgers_elsewhere: [],
      files: [],
      keys: null,
    };
    writeFileSync(join(directory, MANIFEST), `${JSON.stringify(manifest, null, 1)}\n`, { mode: 0o600 });
    await pack(join(directory, "archive"), directory, [STORE, MANIFEST]);
    await rename(join(directory, "archive"), file);
  } finally {
    work.close();
  }
}

async function stage(
  directory: string,
  options: BackupOptions,
): Promise<{ manifest: BackupManifest; entries: string[] }> {
  const { dataDir, storage, passphrase } = options;
  const id = randomBytes(16).toString("hex");
  const created = new Date().toISOString();
  const places = [...new Set([...ledgersBelow(dataDir), ...(options.ledgers ?? []).flatMap(ledgersAt)])];
  const { ledgers, keys } = await stageLedgers(directory, places, options);
  const files = await stageFiles(directory, dataDir);
  // After the ledgers: see above.
  const store = await stageStore(directory, storage.dumps.write);
  const known = new Set(ledgers.map(({ origin, place }) => `${origin} ${place}`));
  const others = (await storage.ledgers.list()).filter(({ origin, place }) => !known.has(`${origin} ${place}`));
  const all = { files: keyFiles(dataDir), sealKeys: options.sealKeys, ledgers: keys };
  const sealed = passphrase === undefined ? undefined : await stageKeys(directory, all, passphrase, id);
  const manifest: BackupManifest = {
    portcullis_backup: 1,
    id,
    created_at: created,
    version: VERSION,
    store,
    ledgers,
    ledgers_elsewhere: others.map(({ origin, place, size }) => ({ origin, place, size })),
    files,
    keys: sealed?.facts ?? null,
  };
  const text = `${JSON.stringify(manifest, null, 1)}\n`;
  writeFileSync(join(directory, MANIFEST), text, { mode: 0o600 });
  if (sealed) writeFileSync(join(directory, MANIFEST_MAC), `${sealed.macOf(text)}\n`, { mode: 0o600 });
  const entries = [
    STORE,
    ...[...ledgers.flatMap((ledger) => ledger.files), ...files].map(({ entry }) => entry),
    ...(sealed ? [KEYS, MANIFEST_MAC] : []),
    MANIFEST,
  ];
  return { manifest, entries };
}

function ledgersAt(path: string): string[] {
  const found = ledgersBelow(resolve(path));
  if (found.length === 0) throw new CliError(`${path} holds no ledger`, EXIT.usage, "name the directory of a ledger");
  return found;
}

async function stageLedgers(
  directory: string,
  places: readonly string[],
  { dataDir, storage }: BackupOptions,
): Promise<{ ledgers: BackedUpLedger[]; keys: BackedUpKeys["ledgers"][number][] }> {
  const ledgers: BackedUpLedger[] = [];
  const keys: BackedUpKeys["ledgers"][number][] = [];
  // How far each ledger had recorded the store's changes is read first: what is recorded twice shows, what is missing not.
  const recorded = await Promise.all(places.map((dir) => storage.feed.recordedBy(cutLedger(dir).origin)));
  const cuts = places.map(cutLedger);
  for (const [i, first] of cuts.entries()) {
    const target = ledgerDirectory(directory, i);
    const { cut, names } = await copied(first, target);
    const found = await verify(target);
    const { to, root, problems } = found;
    if (!isSound(found) || root === undefined) {
      const message = `ledger ${cut.dir} cannot be backed up: ${problems[0]?.message}`;
      throw new CliError(message, undefined, `portcullis audit verify ${cut.dir} shows everything that is wrong`);
    }
    const files: BackedUpFile[] = [];
    for (const name of names) files.push({ ...(await fileFacts(directory, `ledgers/${i}/${name}`)), path: name });
    ledgers.push({
      path: ledgerPath(dataDir, cut.dir),
      place: placeOf(cut.dir),
      origin: cut.origin,
      size: to,
      root,
      checkpoint: cut.checkpoint,
      recorded: recorded[i] as number,
      files,
    });
    keys.push(cut.keys);
  }
  return { ledgers, keys };
}

async function copied(first: LedgerCut, target: string): Promise<{ cut: LedgerCut; names: string[] }> {
  let cut = first;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const names = await copyLedger(cut, target);
    if (names) return { cut, names };
    rmSync(target, { recursive: true, force: true });
    cut = cutLedger(cut.dir);
  }
  throw new CliError(`the files of ledger ${first.dir} keep changing`, undefined, "try again");
}

async function stageFiles(directory: string, dataDir: string): Promise<BackedUpFile[]> {
  const files: BackedUpFile[] = [];
  mkdirSync(join(directory, "files"), { mode: 0o700 });
  for (const path of await pathsOf(dataDir)) {
    const { size } = statSync(join(dataDir, path));
    if (size > MAX_FILE_BYTES) throw new CliError(`${join(dataDir, path)} is larger than 64 MiB`);
    const entry = `files/${files.length}`;
    writeFileSync(join(directory, entry), readFileSync(join(dataDir, path)), { mode: 0o600 });
    files.push({ ...(await fileFacts(directory, entry)), path });
  }
  return files;
}

async function pathsOf(dataDir: string): Promise<string[]> {
  const found: string[] = [];
  for (const name of FILES) {
    const facts = statSync(join(dataDir, name), { throwIfNoEntry: false });
    if (facts?.isFile()) found.push(name);
    if (!facts?.isDirectory()) continue;
    const inside = await readdir(join(dataDir, name), { recursive: true, withFileTypes: true });
    for (const entry of inside.filter((each) => each.isFile())) {
      found.push(
        join(entry.parentPath, entry.name)
          .slice(resolve(dataDir).length + 1)
          .replaceAll("\\", "/"),
      );
    }
    if (found.length > MAX_FILES) throw new CliError(`${dataDir} holds more than ${MAX_FILES} files to back up`);
  }
  return found.sort();
}

async function stageStore(directory: string, copy: Storage["dumps"]["write"]): Promise<BackupManifest["store"]> {
  const target = createWriteStream(join(directory, STORE), { mode: 0o600 });
  const header = await copy(async (line) => {
    if (!target.write(`${line}\n`)) await once(target, "drain");
  });
  target.end();
  await finished(target);
  return { ...header, rows: header.rows as number, ...(await fileFacts(directory, STORE)) };
}

function keyFiles(dataDir: string): Record<string, string> {
  const there = KEY_FILES.filter((name) => existsSync(join(dataDir, name)));
  return Object.fromEntries(there.map((name) => [name, readFileSync(join(dataDir, name), "utf8")]));
}

async function stageKeys(
  directory: string,
  keys: BackedUpKeys,
  passphrase: string,
  id: string,
): Promise<{ facts: NonNullable<BackupManifest["keys"]>; macOf: (text: string) => string }> {
  const cost = newSalt();
  const derived = await deriveKeys(passphrase, cost);
  writeFileSync(join(directory, KEYS), JSON.stringify(sealKeys(keys, derived, cost, id)), { mode: 0o600 });
  const ofLedgers = keys.ledgers.flatMap((each, i) => Object.keys(each).map((name) => `ledger ${i} ${name}`));
  const names = [...(keys.sealKeys.length > 0 ? ["seal key"] : []), ...Object.keys(keys.files), ...ofLedgers];
  return { facts: { ...(await fileFacts(directory, KEYS)), names }, macOf: (text) => macOf(derived, text) };
}
