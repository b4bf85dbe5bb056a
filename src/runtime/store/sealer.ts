// The sealer of a store, with the check that its key is the one that sealed what is there.

import { randomBytes } from "node:crypto";
import { statSync } from "node:fs";
import { REQUEST_STATE_MS } from "../../gateway/index.js";
import {
  createSealer,
  loadSealKeys,
  sealKeyFile,
  sealKeyId,
  type SealedAs,
  type Sealer,
  type SealKeyOptions,
  type Storage,
  StorageError,
} from "../../storage/index.js";
import { CliError } from "../../lib/exit.js";
import { allPages, operator, pageAfter } from "./open.js";

/** One value in the store that needs the seal key. */
export interface SealedValue {
  readonly as: SealedAs;
  readonly sealed: Uint8Array;
  /** For a reader: `secret blog/db`, `token blog/wiki anna`. */
  readonly title: string;
  put(sealed: Uint8Array, by: string): Promise<unknown>;
  remove(by: string): Promise<unknown>;
}

/** Replicas share this one; a new one is made when it is not there. */
export const SHARED_KEY = { app: "~gateway", server: "portcullis", user: "request-state" } as const;
/** The one before it, as JSON: `key`, and by the clock of the store until when it counts. */
export const PREVIOUS_SHARED_KEY = { ...SHARED_KEY, user: "request-state-previous" } as const;
export const isSharedKey = ({ as }: SealedValue): boolean => as.app === SHARED_KEY.app;

/** Everything that is sealed, of all applications. */
export async function sealedValues(storage: Storage): Promise<SealedValue[]> {
  const values: SealedValue[] = [];
  for (const { id: app } of await allPages((after) => storage.applications.list(pageAfter(after)))) {
    for (const { name } of await allPages((after) => storage.secrets.list(app, pageAfter(after)))) {
      const found = await storage.secrets.get(app, name);
      if (!found) continue;
      values.push({
        as: { kind: "secret", app, name },
        sealed: found.sealed,
        title: `secret ${app}/${name}`,
        put: (sealed, by) => storage.secrets.put(app, name, sealed, by),
        remove: (by) => storage.secrets.remove(app, name, by),
      });
    }
  }
  for (const token of await allPages((after) => storage.tokens.list(pageAfter(after)))) {
    const { app, server, user, version } = token;
    const isShared = app === SHARED_KEY.app;
    values.push({
      as: { kind: "token", app, name: `${server}/${user}` },
      sealed: token.sealed,
      title: isShared ? "key of request states" : `token ${app}/${server}${user === "" ? "" : ` of ${user}`}`,
      put: (sealed) => storage.tokens.put({ app, server, user }, sealed, version),
      remove: () => storage.tokens.remove({ app, server, user }),
    });
  }
  return values;
}

/**
 * Seals again what an older key sealed. The key that replicas share is replaced instead: who had the older key and a copy of
 * the store knows it.
 */
export async function resealAll(storage: Storage, sealer: Sealer, app?: string): Promise<string[]> {
  const resealed: string[] = [];
  for (const value of await sealedValues(storage)) {
    if ((app !== undefined && value.as.app !== app) || !sealer.isOld(value.sealed)) continue;
    if (isSharedKey(value) && value.as.name !== sealedAs(SHARED_KEY).name) {
      await value.remove(operator());
      continue;
    }
    const plain = isSharedKey(value) ? newSharedKey() : sealer.open(value.as, value.sealed);
    await value.put(sealer.seal(value.as, plain), operator());
    if (!isSharedKey(value)) resealed.push(value.as.kind === "secret" ? value.as.name : value.title);
  }
  return resealed;
}

/** As long as what the old key encrypted can be valid. */
export const SHARED_KEY_OVERLAP_MS = REQUEST_STATE_MS;

/** What a token is sealed as. */
export const sealedAs = ({ app, server, user }: typeof SHARED_KEY | typeof PREVIOUS_SHARED_KEY) =>
  ({ kind: "token", app, name: `${server}/${user}` }) as const;

/** The old key opens what it encrypted for `overlapMs` more. */
export async function rotateSharedKey(storage: Storage, sealer: Sealer, overlapMs: number): Promise<void> {
  const stored = await storage.tokens.get(SHARED_KEY);
  if (stored && overlapMs > 0) {
    const key = sealer.open(sealedAs(SHARED_KEY), stored.sealed);
    const previous = JSON.stringify({ key, until: (await storage.now()) + overlapMs });
    await storage.tokens.put(PREVIOUS_SHARED_KEY, sealer.seal(sealedAs(PREVIOUS_SHARED_KEY), previous));
  } else {
    await storage.tokens.remove(PREVIOUS_SHARED_KEY);
  }
  await storage.tokens.put(SHARED_KEY, sealer.seal(sealedAs(SHARED_KEY), newSharedKey()));
}

export function newSharedKey(): string {
  return randomBytes(32).toString("base64");
}

/**
 * Refuses a key that opens nothing of what the store holds, and never creates one beside sealed values: both mean that the
 * key was lost or is another one. A key file that is replaced is read again.
 */
export async function openSealer(storage: Storage, options: SealKeyOptions): Promise<Sealer> {
  const values = await sealedValues(storage);
  const keys = loadedKeys({ ...options, mustExist: values.length > 0 }, values);
  const sealer = createSealer(keys, reloading(options));
  const lost = values.filter(({ sealed }) => !sealer.knows(sealed));
  if (lost.length > 0 && (lost.length === values.length || lost.some(isSharedKey))) {
    throw lostKey(
      `the seal key (${keys.map(sealKeyId).join(", ")}) is not the one that sealed the store's values`,
      lost,
    );
  }
  return sealer;
}

function loadedKeys(options: SealKeyOptions, values: readonly SealedValue[]): Uint8Array[] {
  try {
    return loadSealKeys(options);
  } catch (error) {
    const isMissing = error instanceof StorageError && /^(there is no|the keyring has no)/.test(error.message);
    if (!isMissing) throw error;
    throw lostKey(error.message, values);
  }
}

function lostKey(what: string, lost: readonly SealedValue[]): CliError {
  return new CliError(
    `${what}: ${lost.length} sealed values cannot be opened`,
    undefined,
    [
      "put the key back (from a backup: portcullis restore), or name where it is with --seal-key",
      "if it is lost, start over without what it sealed; everything else stays: portcullis secret reset-seal",
    ].join("\n"),
  );
}

/** Answers with the keys of a file that has changed. */
function reloading(options: SealKeyOptions): () => Uint8Array[] | undefined {
  const file = sealKeyFile(options);
  if (file === undefined) return () => undefined;
  const versionOf = (): string => {
    const facts = statSync(file, { bigint: true, throwIfNoEntry: false });
    return facts ? `${facts.ino} ${facts.mtimeNs} ${facts.size}` : "";
  };
  let seen = versionOf();
  return () => {
    const now = versionOf();
    // A file that is gone changes nothing for a gateway that runs.
    if (now === seen || now === "") return undefined;
    seen = now;
    return loadSealKeys({ ...options, mustExist: true });
  };
}
