// `portcullis restore`: everything is checked before anything is written. Keys and files first, then ledgers, the store
// last: gateways that run pick up the store at once, and by then have what belongs to it.

import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { LedgerLocked, type LedgerRecord, openLedger, read, verify } from "../../ledger/index.js";
import {
  type LoadReport,
  loadSealKeys,
  openStorage,
  sealKeyFile,
  type SealKeyOptions,
  type Storage,
  StorageError,
  writeSealKeys,
} from "../../storage/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { placeOf } from "../ledger.js";
import { STORE_FILE } from "../data-directory.js";
import { operator, SEAL_KEY_FILE } from "../store/open.js";
import { type BackedUpKeys, PASSPHRASE_HELP } from "./keys.js";
import { ledgersBelow, REPLACED } from "./ledgers.js";
import {
  type BackedUpLedger,
  type BackupManifest,
  type CheckedBackup,
  isSound,
  ledgerDirectory,
  linesIn,
  openBackup,
  STORE,
} from "./manifest.js";
import { openWorkDirectory } from "./archive.js";

interface RestoreOptions {
  readonly file: string;
  readonly dataDir: string;
  /** Address of the store; the file in the data directory unless given. */
  readonly storage: string | undefined;
  readonly sealKey: string | undefined;
  readonly passphrase: string | undefined;
  readonly withoutKeys: boolean;
  /** Accept a data directory or a store that is not empty. */
  readonly replace: boolean;
}

interface RestoredLedger {
  readonly origin: string;
  readonly path: string;
  /** `kept`: what is there continues the backup and is newer. */
  readonly state: "kept" | "restored";
  readonly size: number;
  /** Where the ledger is that was replaced. */
  readonly aside?: string;
}

export interface RestoreReport extends LoadReport {
  readonly backup: string;
  readonly created_at: string;
  readonly ledgers: readonly RestoredLedger[];
  readonly filesWritten: readonly string[];
  /** Files of the data directory that differ from the backup and stay as they are. */
  readonly filesKept: readonly string[];
  readonly keysWritten: readonly string[];
  /** Keys that have to be put in place before the gateway starts. */
  readonly keysMissing: readonly string[];
  /** Recorded in ledgers that are newer than the backup, and not in the store any more. */
  readonly changesLost: readonly string[];
}

const MAX_REPORTED = 1_000;
/** One transaction loads everything, and waits for the writers of a store that is in use. */
const STORE_TIMES = { statementTimeoutMs: 600_000, stalledTransactionMs: 60_000, sweepMs: 0 };
const CONNECT_MS = 10_000;
const LOAD_MS = 600_000;

export async function restoreBackup(options: RestoreOptions): Promise<RestoreReport> {
  const dataDir = resolve(options.dataDir);
  mkdirSync(dirname(dataDir), { recursive: true, mode: 0o700 });
  const work = openWorkDirectory(dataDir, "restore");
  try {
    const directory = join(work.path, "backup");
    const backup = await openBackup(options.file, directory, options.passphrase);
    checkKeys(backup, options);
    checkTarget(backup.manifest, dataDir, options);
    const storage = await openTarget(dataDir, options);
    try {
      if (!options.replace && !(await storage.dumps.isEmpty())) throw notEmpty("the store");
      return await restoreInto(storage, directory, backup, { ...options, dataDir });
    } finally {
      await storage.close();
    }
  } finally {
    work.close();
  }
}

function checkKeys({ manifest, keys }: CheckedBackup, { withoutKeys }: RestoreOptions): void {
  if (manifest.keys === null || keys !== undefined || withoutKeys) return;
  throw new CliError(
    "the backup holds encrypted keys",
    EXIT.usage,
    `${PASSPHRASE_HELP}, or leave them: --without-keys`,
  );
}

function checkTarget({ store }: BackupManifest, dataDir: string, { replace, storage }: RestoreOptions): void {
  if (store.kind === "postgres" && storage === undefined) {
    const help = "name the store to restore into with --storage: postgres://… or sqlite:PATH";
    throw new CliError("this is the backup of a store in PostgreSQL", EXIT.usage, help);
  }
  if (!replace && existsSync(dataDir) && readdirSync(dataDir).length > 0) throw notEmpty(dataDir);
}

function notEmpty(what: string): CliError {
  return new CliError(`${what} is not empty; nothing was changed`, EXIT.usage, "add --replace when you are sure");
}

/** A database that cannot be opened is set aside: the backup takes its place. */
async function openTarget(dataDir: string, { storage, replace }: RestoreOptions): Promise<Storage> {
  const file = join(dataDir, STORE_FILE);
  let isOpen = false;
  const options = { ...STORE_TIMES, waitMs: () => (isOpen ? LOAD_MS : CONNECT_MS), defaultFile: file };
  try {
    const opened = await openStorage(storage, options);
    isOpen = true;
    return opened;
  } catch (error) {
    const isUnusable = error instanceof StorageError && ["STORAGE_VERSION", "STORAGE_UNAVAILABLE"].includes(error.code);
    if (!isUnusable || !replace || storage !== undefined || !existsSync(file)) throw error;
    const stamp = stampNow();
    for (const each of [file, `${file}-wal`, `${file}-shm`]) {
      if (existsSync(each)) renameSync(each, `${each}${REPLACED}${stamp}`);
    }
    return openStorage(storage, options);
  }
}

interface Target extends RestoreOptions {
  readonly dataDir: string;
}

async function restoreInto(
  storage: Storage,
  directory: string,
  { manifest, keys }: CheckedBackup,
  target: Target,
): Promise<RestoreReport> {
  const plans = await Promise.all(manifest.ledgers.map((ledger) => planFor(ledger, target.dataDir)));
  const later = await laterChanges(plans);
  const files = restoreFiles(directory, manifest, target.dataDir);
  const restoredKeys = restoreKeys(keys, manifest, plans, target);
  const before = await storage.ledgers.list();
  const ledgers: RestoredLedger[] = [];
  for (const [i, plan] of plans.entries()) {
    const from = ledgerDirectory(directory, i);
    const registered = before.find(({ origin, place }) => origin === plan.ledger.origin && place === placeOf(plan.dir));
    ledgers.push(await restoreLedger(plan, from, keys?.ledgers[i], manifest, registered?.size));
  }
  const report = await storage.dumps.load(() => linesIn(join(directory, STORE)), {
    name: manifest.id,
    by: operator(),
    revoke: later.revoked,
  });
  await registerLedgers(storage, plans);
  return {
    backup: manifest.id,
    created_at: manifest.created_at,
    ...report,
    ledgers,
    ...files,
    ...restoredKeys,
    changesLost: later.changes,
  };
}

// ---- ledgers --------------------------------------------------------------------------------------------------------

interface LedgerPlan {
  readonly ledger: BackedUpLedger;
  readonly dir: string;
  /** There is a ledger that continues the one in the backup: it stays. A ledger is never put back. */
  readonly isKept: boolean;
  readonly exists: boolean;
}

async function planFor(ledger: BackedUpLedger, dataDir: string): Promise<LedgerPlan> {
  const dir = isAbsolute(ledger.path) ? ledger.path : join(dataDir, ledger.path);
  const exists = existsSync(dir) && readdirSync(dir).some((name) => /^seq-\d{16}\.ndjson/.test(name));
  if (!exists) return { ledger, dir, exists, isKept: false };
  const found = await verify(dir, { checkpoints: [ledger.checkpoint] }).catch(() => undefined);
  const isKept = found !== undefined && isSound(found) && found.origin === ledger.origin && found.to >= ledger.size;
  if (!isKept) await checkUnlocked(dir, ledger.origin);
  return { ledger, dir, exists, isKept };
}

async function checkUnlocked(dir: string, origin: string): Promise<void> {
  try {
    const ledger = await openLedger({ dir, origin, lockTimeoutMs: 100 });
    await ledger.close();
  } catch (error) {
    if (!(error instanceof LedgerLocked)) return;
    throw new CliError(
      `ledger ${dir} does not continue the backup and is being written by another process`,
      EXIT.error,
      "stop the gateway first",
    );
  }
}

/** What ledgers that are newer than the backup know: revocations count, everything else is reported. */
async function laterChanges(plans: readonly LedgerPlan[]): Promise<{ revoked: string[]; changes: string[] }> {
  const revoked = new Set<string>();
  const changes = new Set<string>();
  for (const { ledger, dir, isKept } of plans) {
    if (!isKept) continue;
    for await (const { record } of read(dir, { from: ledger.size })) {
      const change = changeIn(record);
      if (!change) continue;
      if (change.action === "key.revoke") revoked.add(change.name);
      else if (changes.size < MAX_REPORTED) changes.add(`${change.at} ${change.action} ${change.of} by ${change.by}`);
    }
  }
  return { revoked: [...revoked], changes: [...changes].sort() };
}

const STORE_CHANGE = /^(application|access|key|secret|pin)\./;

function changeIn(record: LedgerRecord) {
  if (record.kind !== "admin" || !STORE_CHANGE.test(record.action)) return undefined;
  const { app = "", name = "", at = record.ts } = (record.detail ?? {}) as Record<string, string>;
  const of = [app, name].filter((part) => part !== "").join("/");
  return { action: record.action, name, of, at, by: record.actor };
}

async function restoreLedger(
  { ledger, dir, exists, isKept }: LedgerPlan,
  from: string,
  keys: Readonly<Record<string, string>> | undefined,
  manifest: BackupManifest,
  registered: number | undefined,
): Promise<RestoredLedger> {
  const { origin, size, root } = ledger;
  if (isKept) return { origin, path: dir, state: "kept", size };
  const kept = exists ? readSigningKeys(dir) : undefined;
  const aside = exists ? `${dir}${REPLACED}${stampNow()}` : undefined;
  if (aside !== undefined) moveLedger(dir, aside);
  await cp(from, dir, { recursive: true });
  restrict(dir);
  const signing = keys?.["signing.key"] === undefined ? kept : keys;
  for (const [name, text] of Object.entries(signing ?? {})) writePrivate(join(dir, name), text);
  const restored = { origin, path: dir, state: "restored", size, ...(aside === undefined ? {} : { aside }) } as const;
  if (!existsSync(join(dir, "signing.key"))) return restored;
  const open = await openLedger({ dir, origin });
  const detail = { backup: manifest.id, created_at: manifest.created_at, size, root, registered: registered ?? null };
  await open
    .append({ kind: "admin", actor: operator(), action: "ledger.restored", detail })
    .finally(() => open.close());
  return restored;
}

/** Ledgers of workers lie inside another one, and stay. */
function moveLedger(dir: string, aside: string): void {
  mkdirSync(aside, { mode: 0o700 });
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const isOther = entry.isDirectory() && ledgersBelow(join(dir, entry.name)).length > 0;
    if (!isOther) renameSync(join(dir, entry.name), join(aside, entry.name));
  }
}

function readSigningKeys(dir: string): Record<string, string> {
  const names = ["signing.key", "signing.key.rotate"].filter((name) => existsSync(join(dir, name)));
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(dir, name), "utf8")]));
}

/** From now on the registry expects the ledgers as they are, where they are. */
async function registerLedgers(storage: Storage, plans: readonly LedgerPlan[]): Promise<void> {
  for (const { ledger, dir, isKept } of plans) {
    const place = placeOf(dir);
    const note = readFileSync(join(dir, "checkpoint"), "utf8");
    if (ledger.place !== place) await storage.ledgers.remove(ledger.origin, operator(), ledger.place);
    if (!isKept) {
      await storage.ledgers.remove(ledger.origin, operator(), place);
      await storage.feed.setRecorded(ledger.origin, ledger.recorded);
    }
    await storage.ledgers.put({ origin: ledger.origin, place, note, size: Number(note.split("\n", 2)[1]) });
  }
}

// ---- files and keys -------------------------------------------------------------------------------------------------

/** What is there stays: a policy that was tightened since the backup must not become wider by a restore. */
function restoreFiles(
  directory: string,
  { files }: BackupManifest,
  dataDir: string,
): Pick<RestoreReport, "filesWritten" | "filesKept"> {
  const hasPolicy = existsSync(join(dataDir, "policy"));
  const filesWritten: string[] = [];
  const filesKept: string[] = [];
  for (const { entry, path } of files) {
    const target = join(dataDir, path);
    const bytes = readFileSync(join(directory, entry));
    const isThere = existsSync(target);
    if (isThere && readFileSync(target).equals(bytes)) continue;
    if (isThere || (hasPolicy && path.startsWith("policy/"))) {
      filesKept.push(path);
      continue;
    }
    writePrivate(target, bytes);
    filesWritten.push(path);
  }
  return { filesWritten, filesKept };
}

function restoreKeys(
  keys: BackedUpKeys | undefined,
  { store }: BackupManifest,
  plans: readonly LedgerPlan[],
  target: Target,
): Pick<RestoreReport, "keysWritten" | "keysMissing"> {
  const { dataDir, sealKey } = target;
  const written: string[] = [];
  const missing: string[] = [];
  for (const [name, text] of Object.entries(keys?.files ?? {})) {
    if (!/^[a-z.]{1,64}$/.test(name) || existsSync(join(dataDir, name))) continue;
    writePrivate(join(dataDir, name), text);
    written.push(name);
  }
  const source: SealKeyOptions = {
    defaultFile: join(dataDir, SEAL_KEY_FILE),
    mustExist: true,
    ...(sealKey === undefined ? {} : { source: sealKey }),
  };
  const file = sealKeyFile(source);
  const archived = (keys?.sealKeys ?? []).map((text) => Buffer.from(text, "base64"));
  const present = sealKeysAt(source);
  const lacking = archived.filter((key) => !present.some((each) => key.equals(each)));
  if (lacking.length > 0 && file !== undefined) {
    // The newer key stays first; the ones of the backup open what the backup holds.
    writeSealKeys(file, [...present, ...lacking]);
    written.push(file);
  } else if (lacking.length > 0 || (present.length === 0 && store.rows > 0)) {
    missing.push(`seal key (${sealKey ?? file ?? "PORTCULLIS_SEAL_KEY"})`);
  }
  for (const [i, { dir, isKept }] of plans.entries()) {
    const has = keys?.ledgers[i]?.["signing.key"] !== undefined || existsSync(join(dir, "signing.key"));
    if (!isKept && !has) missing.push(join(dir, "signing.key"));
  }
  return { keysWritten: written, keysMissing: missing };
}

function sealKeysAt(source: SealKeyOptions): Uint8Array[] {
  try {
    return loadSealKeys(source);
  } catch (error) {
    if (error instanceof StorageError && error.code === "STORAGE_SEAL") return [];
    throw error;
  }
}

function writePrivate(path: string, content: string | Uint8Array): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileSync(path, content, { mode: 0o600, flush: true });
}

/** As the gateway creates them: for their owner alone. */
function restrict(dir: string): void {
  chmodSync(dir, 0o700);
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    if (entry.isDirectory()) restrict(join(dir, entry.name));
    else chmodSync(join(dir, entry.name), 0o600);
  }
}

function stampNow(): string {
  return new Date().toISOString().replaceAll(/[-:.]/g, "");
}
