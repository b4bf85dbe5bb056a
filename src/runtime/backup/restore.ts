// `portcullis restore`: everything is checked before anything is written. Keys and files first, then ledgers, the store
// last: gateways that run pick up the store at once, and by then have what belongs to it.

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { CliError, EXIT } from "../../lib/exit.js";
import {
  type LoadReport,
  loadSealKeys,
  openStorage,
  type SealKeyOptions,
  type Storage,
  StorageError,
  sealKeyFile,
  writeSealKeys,
} from "../../storage/index.js";
import { STORE_FILE } from "../data-directory.js";
import { operator, SEAL_KEY_FILE } from "../store/open.js";
import { openWorkDirectory } from "./archive.js";
import { type BackedUpKeys, PASSPHRASE_HELP } from "./keys.js";
import { REPLACED } from "./ledgers.js";
import { type BackupManifest, type CheckedBackup, ledgerDirectory, linesIn, openBackup, STORE } from "./manifest.js";
import {
  type LedgerPlan,
  laterChanges,
  planLedger,
  type RestoredLedger,
  registerLedgers,
  restoreLedger,
  stampNow,
  writePrivate,
} from "./restore-ledgers.js";

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
  const before = await storage.ledgers.list();
  const plans = await Promise.all(
    manifest.ledgers.map((ledger) => planLedger(ledger, manifest.id, target.dataDir, before)),
  );
  const later = await laterChanges(plans);
  const files = restoreFiles(directory, manifest, target.dataDir);
  const restoredKeys = restoreKeys(keys, manifest, plans, target);
  const ledgers: RestoredLedger[] = [];
  for (const [i, plan] of plans.entries()) {
    ledgers.push(await restoreLedger(plan, ledgerDirectory(directory, i), keys?.ledgers[i], manifest));
  }
  const report = await storage.dumps.load(() => linesIn(join(directory, STORE)), {
    name: manifest.id,
    by: operator(),
    revoke: [...later.lasting.revoked],
  });
  await later.lasting.write(storage, operator());
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
