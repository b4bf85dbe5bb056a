// What `app`, `key` and `secret` share: the store that the gateway uses, and the name under which changes are made.

import { userInfo } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { createSealer, loadSealKeys, openStorage, type Sealer, type Storage } from "../../storage/index.js";
import { CliError } from "../exit.js";
import { shared } from "../options.js";
import { statePaths, STORE_FILE, STORE_WAIT_MS } from "../state.js";

export interface StoreOptions {
  storage?: string;
  sealKey?: string;
}

export const SEAL_KEY_FILE = "seal.key";

/** The options that lead to the store, also by the environment: an address may hold a password. */
export function withStoreOptions(command: Command): Command {
  return command
    .option("--storage <address>", "sqlite:path or postgres://…, also PORTCULLIS_STORAGE")
    .option("--seal-key <source>", "env:NAME, file:PATH or keyring:NAME, also PORTCULLIS_SEAL_KEY_SOURCE");
}

export async function withStore<T>(
  command: Command,
  options: StoreOptions,
  work: (storage: Storage) => Promise<T>,
): Promise<T> {
  const address = options.storage ?? process.env.PORTCULLIS_STORAGE;
  const { dir } = statePaths(shared(command).dir);
  // A file that another process writes is free again soon; a server that does not answer may stay away.
  const isPostgres = address?.startsWith("postgres") === true;
  const storage = await openStorage(address, {
    defaultFile: join(dir, STORE_FILE),
    sweepMs: 0,
    ...(isPostgres ? { waitMs: STORE_WAIT_MS } : {}),
  });
  try {
    return await work(storage);
  } finally {
    await storage.close();
  }
}

export function sealerFor(command: Command, options: StoreOptions): Sealer {
  const source = options.sealKey ?? process.env.PORTCULLIS_SEAL_KEY_SOURCE;
  const { dir } = statePaths(shared(command).dir);
  const keys = loadSealKeys({ defaultFile: join(dir, SEAL_KEY_FILE), ...(source === undefined ? {} : { source }) });
  return createSealer(keys);
}

/** Who is on record for a change made here. */
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
