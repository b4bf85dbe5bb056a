// What `app`, `key` and `secret` share: the store that the gateway uses, and the name under which changes are made.

import { existsSync, readdirSync, rmSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { CliError } from "../../lib/exit.js";
import {
  type Application,
  openStorage,
  type Sealer,
  type SealKeyOptions,
  type Storage,
  type StorageOptions,
} from "../../storage/index.js";
import {
  otherDataDirectories,
  otherDirectoriesHelp,
  rememberDataDirectory,
  STORE_FILE,
  STORE_START_WAIT_MS,
  STORE_WAIT_MS,
  statePaths,
} from "../data-directory.js";
import { shared } from "../options.js";

export interface StoreOptions {
  storage?: string;
  sealKey?: string;
}

export const SEAL_KEY_FILE = "seal.key";

/** The options that lead to the store, also by the environment: an address may hold a password. */
export function withStoreOptions(command: Command): Command {
  return command
    .option("--storage <address>", "store: sqlite:FILE or postgres://…, also PORTCULLIS_STORAGE")
    .option("--seal-key <source>", "seal key: env:NAME, file:PATH or keyring:NAME, also PORTCULLIS_SEAL_KEY_SOURCE");
}

const MAX_KEPT = 5;

/** The store of a data directory. An older one is backed up there before it is changed. */
export function openStore(
  dir: string,
  address: string | undefined,
  options: Omit<StorageOptions, "defaultFile" | "beforeMigration"> = {},
): Promise<Storage> {
  return openStorage(address, {
    ...options,
    defaultFile: join(dir, STORE_FILE),
    beforeMigration: async (copy, from) => void (await backUpBeforeMigration(join(dir, "backups"), copy, from)),
  });
}

/** Beside the data: to go back to the version before, it is restored. The newest five are kept. */
export async function backUpBeforeMigration(
  directory: string,
  copy: Storage["dumps"]["write"],
  level: number,
): Promise<string> {
  const { backUpStore } = await import("../backup/create.js");
  const stamp = new Date().toISOString().replaceAll(/[-:.]/g, "");
  const file = join(directory, `store-level-${level}-${stamp}.backup`);
  await backUpStore(file, copy);
  const all = readdirSync(directory).filter((name) => /^store-level-\d+-\w+\.backup$/.test(name));
  const byAge = all.sort((a, b) => (stampOf(a) < stampOf(b) ? 1 : -1));
  for (const name of byAge.slice(MAX_KEPT)) rmSync(join(directory, name), { force: true });
  return file;
}

const stampOf = (name: string): string => name.slice(name.lastIndexOf("-") + 1);

interface WithStoreOptions extends Pick<StorageOptions, "waitMs" | "statementTimeoutMs" | "stalledTransactionMs"> {
  /** Create the store of the data directory where there is none; otherwise `work` sees an empty one. */
  readonly create?: boolean;
  /** Another data directory than that of the command. */
  readonly dir?: string;
}

/** False when the store would be a file that is not there. */
function hasStore(command: Command, options: StoreOptions, dir = shared(command).dir): boolean {
  const address = storeAddressOf(options) ?? `sqlite:${join(statePaths(dir).dir, STORE_FILE)}`;
  return !address.startsWith("sqlite:") || existsSync(address.slice("sqlite:".length).replace(/^\/\/(?=\/)/, ""));
}

export async function withStore<T>(
  command: Command,
  options: StoreOptions,
  work: (storage: Storage) => Promise<T>,
  { create = false, dir: named, ...times }: WithStoreOptions = {},
): Promise<T> {
  const { dir } = statePaths(named ?? shared(command).dir);
  if (create) rememberDataDirectory(dir);
  // A question about a data directory does not create it.
  const isAbsent = !create && !hasStore(command, options, dir);
  const address = isAbsent ? "sqlite::memory:" : storeAddressOf(options);
  // A file that another process writes is free again soon; a server that does not answer at first may stay away.
  const isPostgres = address?.startsWith("postgres") === true;
  let isOpen = false;
  const storage = await openStore(dir, address, {
    sweepMs: 0,
    ...(isPostgres ? { waitMs: () => (isOpen ? STORE_START_WAIT_MS : STORE_WAIT_MS) } : {}),
    ...times,
  });
  isOpen = true;
  try {
    return await work(storage);
  } catch (error) {
    const isNamed = !(error instanceof CliError) || !isAbsent || otherDataDirectories(dir).length === 0;
    if (isNamed) throw error;
    const where = `no applications are stored in ${dir}: ${otherDirectoriesHelp(dir)}`;
    throw new CliError(error.message, error.exitCode, [error.help, where].filter(Boolean).join("\n"));
  } finally {
    await storage.close();
  }
}

export function storeAddressOf(options: StoreOptions): string | undefined {
  return options.storage ?? process.env.PORTCULLIS_STORAGE;
}

/** Where the seal key of this data directory is. */
export function sealKeySource(command: Command, options: StoreOptions): SealKeyOptions {
  const source = options.sealKey ?? process.env.PORTCULLIS_SEAL_KEY_SOURCE;
  const { dir } = statePaths(shared(command).dir);
  return { defaultFile: join(dir, SEAL_KEY_FILE), ...(source === undefined ? {} : { source }) };
}

export async function sealerFor(storage: Storage, command: Command, options: StoreOptions): Promise<Sealer> {
  const { openSealer } = await import("./sealer.js");
  return openSealer(storage, sealKeySource(command, options));
}

/** The actor on record for changes of this command. */
export function operator(): string {
  try {
    return `cli:${userInfo().username}`;
  } catch {
    return `cli:uid-${process.getuid?.() ?? "unknown"}`;
  }
}

export function noApplication(id: string): CliError {
  return new CliError(`there is no application \`${id}\``, undefined, "portcullis app ls shows what there is");
}

/** Every item of a paged list, up to a bound. */
export async function allPages<T>(
  next: (after: string | undefined) => Promise<{ items: readonly T[]; next?: string }>,
  max = 100_000,
): Promise<T[]> {
  const all: T[] = [];
  let after: string | undefined;
  do {
    const page = await next(after);
    all.push(...page.items);
    after = page.next;
  } while (after !== undefined && all.length < max);
  return all;
}

export const pageAfter = (after: string | undefined): { limit: number; after?: string } => ({
  limit: 1_000,
  ...(after === undefined ? {} : { after }),
});

export const LOCAL_APP = "local";
const DOCUMENT = { description: "keys of `portcullis serve` without applications" };

/** Creates it unless it exists. */
export async function ensureLocalApplication(storage: Storage, by: string): Promise<void> {
  await storage.applications.put(LOCAL_APP, DOCUMENT, by, 0);
}

/** True until anything but keys is configured for it. */
export function isForKeysOnly({ id, document }: Application): boolean {
  return id === LOCAL_APP && JSON.stringify(document) === JSON.stringify(DOCUMENT);
}
