// The sealer of a store, with the check that its key is the one that sealed what is there.

import { randomBytes } from "node:crypto";
import { statSync } from "node:fs";
import { REQUEST_STATE_MS, type SharedKeys } from "../../gateway/index.js";
import { CliError } from "../../lib/exit.js";
import {
  createSealer,
  loadSealKeys,
  type SealedAs,
  type Sealer,
  type SealKeyOptions,
  type Storage,
  StorageError,
  sealKeyFile,
  sealKeyId,
} from "../../storage/index.js";
import type { Telemetry } from "../../telemetry/index.js";
import { allPages, operator, pageAfter } from "./open.js";

/** One value in the store that needs the seal key. */
interface SealedValue {
  readonly as: SealedAs;
  readonly sealed: Uint8Array;
  /** For a reader: `secret blog/db`, `token blog/wiki anna`. */
  readonly title: string;
  put(sealed: Uint8Array, by: string): Promise<unknown>;
  remove(by: string): Promise<unknown>;
}

/** Replicas share this one; a new one is made when it is not there. */
const SHARED_KEY = { app: "~gateway", server: "portcullis", user: "request-state" } as const;
/** The one before it, as JSON: `key`, and by the clock of the store until when it counts. */
const PREVIOUS_SHARED_KEY = { ...SHARED_KEY, user: "request-state-previous" } as const;
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
 * Seals again what an older key sealed. The key that replicas share is replaced instead: a holder of the older key and of a copy of
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
const sealedAs = ({ app, server, user }: typeof SHARED_KEY | typeof PREVIOUS_SHARED_KEY) =>
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

function newSharedKey(): string {
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

const TRIES = 3;
/** Whatever callers send, the store is read no more often than this. */
const REFRESH_MS = 250;

export async function followSharedKeys(
  storage: Storage,
  sealer: Sealer,
  telemetry: Telemetry,
): Promise<SharedKeys & { close(): void }> {
  const keys = new FollowedKeys(storage, sealer);
  await keys.read();
  const reload = (): void => {
    keys
      .read()
      .catch((error: Error) =>
        telemetry.log.error("the key of request states cannot be read", { problem: error.message }),
      );
  };
  keys.close = await storage.feed.watch({
    change: ({ topic, app }) => {
      if (topic === "token" && app === SHARED_KEY.app) reload();
    },
    resync: reload,
  });
  return keys;
}

class FollowedKeys implements SharedKeys {
  readonly #storage: Storage;
  readonly #sealer: Sealer;
  #current: Buffer = Buffer.alloc(0);
  #previous: { readonly key: Buffer; readonly until: number } | undefined;
  #refreshing: Promise<void> | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  close: () => void = () => {};

  constructor(storage: Storage, sealer: Sealer) {
    this.#storage = storage;
    this.#sealer = sealer;
  }

  get current(): Buffer {
    return this.#current;
  }

  get previous(): Buffer | undefined {
    const { key, until } = this.#previous ?? { until: 0 };
    return performance.now() < until ? key : undefined;
  }

  refresh(): Promise<void> {
    this.#refreshing ??= new Promise<void>((resolve) => {
      setTimeout(resolve, Math.max(0, this.#readAt + REFRESH_MS - performance.now()));
    })
      .then(() => this.read())
      .finally(() => {
        this.#refreshing = undefined;
      });
    return this.#refreshing;
  }

  async read(): Promise<void> {
    this.#readAt = performance.now();
    const current = await this.#readCurrent();
    this.#previous = await this.#readPrevious();
    this.#current = current;
  }

  /** It is replaced when it is encrypted with an older sealing key: a holder of that key and of a copy of the store knows it. */
  async #readCurrent(): Promise<Buffer> {
    const as = sealedAs(SHARED_KEY);
    for (let i = 0; i < TRIES; i++) {
      const stored = await this.#storage.tokens.get(SHARED_KEY);
      if (stored && !this.#sealer.isOld(stored.sealed)) {
        return Buffer.from(this.#sealer.open(as, stored.sealed), "base64");
      }
      // Throws when none of the keys opens it: this gateway was given another key than the one before, or its replicas.
      if (stored) this.#sealer.open(as, stored.sealed);
      const fresh = newSharedKey();
      const put = await this.#storage.tokens.put(SHARED_KEY, this.#sealer.seal(as, fresh), stored?.version ?? 0);
      if (put) return Buffer.from(fresh, "base64");
    }
    throw new StorageError("STORAGE_UNAVAILABLE", "the store keeps no key for this gateway; is it writable?");
  }

  async #readPrevious(): Promise<{ readonly key: Buffer; readonly until: number } | undefined> {
    const stored = await this.#storage.tokens.get(PREVIOUS_SHARED_KEY);
    if (!stored || this.#sealer.isOld(stored.sealed)) return undefined;
    const text = this.#sealer.open(sealedAs(PREVIOUS_SHARED_KEY), stored.sealed);
    const { key, until } = JSON.parse(text) as { key: string; until: number };
    const leftMs = until - (await this.#storage.now());
    return { key: Buffer.from(key, "base64"), until: performance.now() + leftMs };
  }
}
