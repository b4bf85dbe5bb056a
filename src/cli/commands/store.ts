import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { withProgress } from "../../lib/progress.js";
import { createBackup } from "../../runtime/backup/create.js";
import { PASSPHRASE_HELP, passphraseFrom } from "../../runtime/backup/keys.js";
import { type BackupManifest, openBackup } from "../../runtime/backup/manifest.js";
import { type RestoreReport, restoreBackup } from "../../runtime/backup/restore.js";
import { statePaths } from "../../runtime/data-directory.js";
import { agreed, outFor, shared } from "../../runtime/options.js";
import {
  backUpBeforeMigration,
  type StoreOptions,
  sealKeySource,
  storeAddressOf,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";
import { loadSealKeys, type Storage, StorageError } from "../../storage/index.js";

/** A gateway that registered this recently is running. */
const ALIVE_MS = 20_000;

export function addStoreCommands(program: Command): void {
  addBackupCommands(program);
  const store = program.command("store").description("show or lower the level of the store's tables");

  withStoreOptions(store.command("level"))
    .description("show the level of the tables; an older store is migrated, as by every command")
    .action((options: StoreOptions, command: Command) =>
      withStore(command, options, async ({ dumps: { level }, kind }) =>
        outFor(command).data({ kind, level }, () => `${kind}, level ${level}`),
      ),
    );

  withStoreOptions(store.command("downgrade"))
    .description("lower the tables by one level for the previous version; stop all gateways first")
    .option("-y, --yes", "do not ask for confirmation")
    .action((options: StoreOptions & { yes?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        const running = await storage.replicas.list(ALIVE_MS);
        if (running.length > 0) {
          const names = running.map(({ id }) => id).join(", ");
          throw new CliError(`gateways use the store: ${names}`, undefined, "stop them and wait 20 seconds");
        }
        await agreed("Lower the store by one level? Data that only the newer level has is removed.", options.yes);
        const directory = join(statePaths(shared(command).dir).dir, "backups");
        const backup = await backUpBeforeMigration(directory, storage.dumps.write, storage.dumps.level);
        const level = await storage.dumps.downgrade();
        outFor(command).data({ level, backup }, () =>
          [
            `the store has level ${level}; install the previous version now: this one would migrate it again`,
            `a copy of level ${level + 1} is in ${backup}`,
          ].join("\n"),
        );
      }),
    );
}

interface PassphraseOptions {
  passphraseFile?: string;
}

interface CreateOptions extends StoreOptions, PassphraseOptions {
  withoutKeys?: boolean;
  ledger?: string[];
}

interface RestoreFlags extends StoreOptions, PassphraseOptions {
  dataDir?: string;
  withoutKeys?: boolean;
  replace?: boolean;
}

/** A copy of a large store takes longer than an ordinary statement, and its reader is sometimes silent. */
const COPY_TIMES = { statementTimeoutMs: 600_000, stalledTransactionMs: 60_000 };
const MAX_SHOWN = 20;

function withPassphrase(command: Command): Command {
  return command.option("--passphrase-file <file>", "file with the passphrase, also PORTCULLIS_BACKUP_PASSPHRASE");
}

function addBackupCommands(program: Command): void {
  const backup = program.command("backup").description("copy store, ledgers and keys into one verified file");

  withPassphrase(withStoreOptions(backup.command("create <path>", { isDefault: true })))
    .description("write a backup to a new file or into a directory; the gateway continues to run")
    .option("--without-keys", "leave out the seal key, the signing keys of ledgers and the tokens of the operator")
    .option("--ledger <directory...>", "ledgers outside the data directory")
    .action(async (path: string, options: CreateOptions, command: Command) => {
      const { dir } = statePaths(shared(command).dir);
      const passphrase = options.withoutKeys ? undefined : passphraseFrom(options.passphraseFile);
      if (passphrase === undefined && !options.withoutKeys) {
        const message = "a backup contains keys, which are never written unencrypted";
        throw new CliError(message, EXIT.usage, `${PASSPHRASE_HELP}, or leave the keys out: --without-keys`);
      }
      if (storeAddressOf(options) === undefined && !existsSync(dir)) {
        throw new CliError(`there is no data directory ${dir}`, EXIT.usage, "name it with --dir");
      }
      const file = fileFor(path);
      const create = (storage: Storage) =>
        createBackup({
          dataDir: dir,
          storage,
          file,
          passphrase,
          sealKeys: passphrase === undefined ? [] : sealKeysOf(command, options),
          ...(options.ledger ? { ledgers: options.ledger } : {}),
        });
      const manifest = await withProgress("writing the backup", () => withStore(command, options, create, COPY_TIMES));
      outFor(command).data({ file, ...factsOf(manifest) }, () => `${file}\n${describe(manifest)}`);
    });

  withPassphrase(backup.command("verify <file>"))
    .description("verify every part of a backup; with the passphrase also its keys and its origin")
    .action(async (file: string, options: PassphraseOptions, command: Command) => {
      const directory = mkdtempSync(join(tmpdir(), "portcullis-backup-"));
      try {
        const passphrase = passphraseFrom(options.passphraseFile);
        const { manifest, isAuthenticated } = await openBackup(file, join(directory, "backup"), passphrase);
        outFor(command).data({ ok: true, authenticated: isAuthenticated, ...factsOf(manifest) }, () =>
          [`good${isAuthenticated ? "" : " (not authenticated: no passphrase)"}`, describe(manifest)].join("\n"),
        );
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    });

  withPassphrase(withStoreOptions(program.command("restore <file>")))
    .description("restore a backup; it is verified first, and running gateways read the store again")
    .option("--data-dir <directory>", "the data directory (default: --dir)")
    .option("--replace", "replace a data directory or store that is not empty; ledgers are never rolled back")
    .option("--without-keys", "do not restore the keys")
    .action(async (file: string, options: RestoreFlags, command: Command) => {
      const source = options.sealKey ?? process.env.PORTCULLIS_SEAL_KEY_SOURCE;
      const report = await withProgress("restoring", () =>
        restoreBackup({
          file,
          dataDir: resolve(options.dataDir ?? statePaths(shared(command).dir).dir),
          storage: storeAddressOf(options),
          sealKey: source,
          passphrase: options.withoutKeys ? undefined : passphraseFrom(options.passphraseFile),
          withoutKeys: options.withoutKeys ?? false,
          replace: options.replace ?? false,
        }),
      );
      outFor(command).data(report, () => describeRestore(report));
    });
}

function fileFor(path: string): string {
  const isDirectory = path.endsWith("/") || statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const stamp = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, "");
  return resolve(isDirectory ? join(path, `portcullis-${stamp}.backup`) : path);
}

/** None where nothing was ever sealed: a backup creates no key. */
function sealKeysOf(command: Command, options: StoreOptions): string[] {
  try {
    const keys = loadSealKeys({ ...sealKeySource(command, options), mustExist: true });
    return keys.map((key) => Buffer.from(key).toString("base64"));
  } catch (error) {
    if (error instanceof StorageError && error.code === "STORAGE_SEAL") return [];
    throw error;
  }
}

function factsOf({ id, created_at, version, store, ledgers, ledgers_elsewhere, keys }: BackupManifest): object {
  const { kind, level, epoch, seq, rows } = store;
  return {
    id,
    created_at,
    version,
    store: { kind, level, epoch, seq, rows },
    ledgers: ledgers.map(({ path, origin, size, root }) => ({ path, origin, size, root })),
    ledgers_elsewhere,
    keys: keys?.names ?? null,
  };
}

function describe({ id, created_at, store, ledgers, ledgers_elsewhere, keys }: BackupManifest): string {
  return [
    `backup ${id} of ${created_at}`,
    `store   ${store.kind}, level ${store.level}, ${store.rows} rows`,
    ...ledgers.map(({ path, origin, size }) => `ledger  ${path} (${origin}), ${size} records`),
    ...ledgers_elsewhere.map(({ origin, place }) => `not in it: ledger ${origin} at ${place}; back it up there`),
    keys === null ? "keys    left out: keep copies of them" : `keys    ${keys.names.join(", ")} (encrypted)`,
  ].join("\n");
}

function describeRestore(report: RestoreReport): string {
  const list = (title: string, names: readonly string[]): string[] => {
    if (names.length === 0) return [];
    const more = names.length > MAX_SHOWN ? [`  and ${names.length - MAX_SHOWN} more (--json shows them)`] : [];
    return [title, ...names.slice(0, MAX_SHOWN).map((name) => `  ${name}`), ...more];
  };
  return [
    `restored backup ${report.backup} of ${report.created_at}`,
    ...report.ledgers.map(({ origin, path, state, size, aside }) =>
      state === "kept"
        ? `ledger ${origin} kept: ${path} continues the backup`
        : `ledger ${origin} restored with ${size} records: ${path}${aside === undefined ? "" : `; the one before is in ${aside}`}`,
    ),
    `approval requests that were open and are expired now: ${report.expiredApprovals}`,
    ...list("applications that are not there any more:", report.applicationsGone),
    ...list("applications that were not there before:", report.applicationsBack),
    ...list("applications with another revision:", report.applicationsChanged),
    ...list("keys that were in force and are unknown now:", report.keysGone),
    ...list("keys in force that were unknown before; revoke those that were revoked since:", report.keysBack),
    ...list("keys that stay revoked:", report.keysStayRevoked),
    ...list("changes on record that are not in the store any more:", report.changesLost),
    ...list("files that differ from the backup and stay as they are:", report.filesKept),
    ...list("to be put in place before the gateway starts:", report.keysMissing),
  ].join("\n");
}
