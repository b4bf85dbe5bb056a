// A store by its address.

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { StorageError } from "./errors.js";
import { StoredFeed } from "./feed.js";
import type { Engine } from "./sql.js";
import type { SqliteLibrary } from "./sqlite/driver.js";
import { openSqlite } from "./sqlite/engine.js";
import { applicationsIn } from "./tables/applications.js";
import { challengesIn } from "./tables/challenges.js";
import { keysIn } from "./tables/keys.js";
import { leasesIn } from "./tables/leases.js";
import { lettersIn } from "./tables/letters.js";
import { onceIn } from "./tables/once.js";
import { pinsIn } from "./tables/pins.js";
import { replicasIn } from "./tables/replicas.js";
import { repositoriesIn } from "./tables/repositories.js";
import { secretsIn } from "./tables/secrets.js";
import { sessionsIn } from "./tables/sessions.js";
import { sweep } from "./tables/sweep.js";
import { tokensIn } from "./tables/tokens.js";
import { valuesIn } from "./tables/values.js";
import type { Storage } from "./types.js";

export interface StorageOptions {
  /** Where the store is when no address is given. */
  readonly defaultFile?: string;
  /** How long an operation may wait for a store that is busy or away. */
  readonly waitMs?: number;
  /** Operations that may wait at once; more fail at once. */
  readonly maxWaiting?: number;
  readonly maxConnections?: number;
  readonly statementTimeoutMs?: number;
  /** How many runtime values an application may have. */
  readonly maxValues?: number;
  /** Between two rounds of removing what has expired; 0 for never. */
  readonly sweepMs?: number;
  /** Which of the SQLite libraries; the one that comes with Node, where it does, unless said. */
  readonly sqliteLibrary?: SqliteLibrary;
}

const DEFAULTS = {
  waitMs: 5_000,
  maxWaiting: 10_000,
  maxConnections: 8,
  statementTimeoutMs: 10_000,
  sweepMs: 60_000,
};

/** `sqlite:path`, `sqlite::memory:` or `postgres://user@host/database`. Makes the tables that are not there. */
export async function openStorage(url: string | undefined, options: StorageOptions = {}): Promise<Storage> {
  const origin = randomBytes(9).toString("base64url");
  const engine = await openEngine(url, origin, options);
  const feed = new StoredFeed(engine);
  const sweepMs = options.sweepMs ?? DEFAULTS.sweepMs;
  const sweeping = sweepMs > 0 ? setInterval(() => void sweep(engine).catch(() => {}), sweepMs) : undefined;
  sweeping?.unref();
  return {
    kind: engine.kind,
    origin,
    applications: applicationsIn(engine),
    keys: keysIn(engine),
    secrets: secretsIn(engine),
    pins: pinsIn(engine),
    tokens: tokensIn(engine),
    challenges: challengesIn(engine, feed),
    sessions: sessionsIn(engine),
    values: valuesIn(engine, options.maxValues),
    repositories: repositoriesIn(engine),
    leases: leasesIn(engine),
    replicas: replicasIn(engine),
    once: onceIn(engine),
    letters: lettersIn(engine),
    feed,
    async ping() {
      await engine.read((sql) => sql.all("SELECT seq FROM feed"));
    },
    async close() {
      clearInterval(sweeping);
      await feed.close();
      await engine.close();
    },
  };
}

async function openEngine(url: string | undefined, origin: string, options: StorageOptions): Promise<Engine> {
  const address = url ?? (options.defaultFile === undefined ? undefined : `sqlite:${options.defaultFile}`);
  const shared = {
    origin,
    waitMs: options.waitMs ?? DEFAULTS.waitMs,
    maxWaiting: options.maxWaiting ?? DEFAULTS.maxWaiting,
  };
  if (address?.startsWith("sqlite:")) {
    const file = address.slice("sqlite:".length).replace(/^\/\/(?=\/)/, "");
    if (file === "") throw new StorageError("STORAGE_INVALID", "sqlite: names no file; write sqlite:path/to/store.db");
    const path = file === ":memory:" ? file : resolve(file);
    return openSqlite(path, { ...shared, library: options.sqliteLibrary });
  }
  if (address !== undefined && /^postgres(ql)?:\/\//.test(address)) {
    // Loaded only where it is used.
    const { openPostgres } = await import("./postgres/engine.js");
    return openPostgres(address, {
      ...shared,
      maxConnections: options.maxConnections ?? DEFAULTS.maxConnections,
      statementTimeoutMs: options.statementTimeoutMs ?? DEFAULTS.statementTimeoutMs,
    });
  }
  // The address may hold a password: it is not repeated.
  throw new StorageError("STORAGE_INVALID", "a store's address begins with sqlite: or postgres://");
}
