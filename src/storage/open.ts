// A store by its address.

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { dump, dumpsIn } from "./dump.js";
import { StorageError } from "./errors.js";
import { StoredFeed } from "./feed.js";
import type { BeforeMigration } from "./migrations.js";
import { observed, type ObserveStore } from "./observed.js";
import { settleRollback } from "./rollback.js";
import type { Engine, Row } from "./sql.js";
import type { SqliteLibrary } from "./sqlite/driver.js";
import { openSqlite } from "./sqlite/engine.js";
import { accessIn } from "./tables/access.js";
import { applicationsIn } from "./tables/applications.js";
import { challengesIn } from "./tables/challenges.js";
import { keysIn } from "./tables/keys.js";
import { leasesIn } from "./tables/leases.js";
import { lettersIn } from "./tables/letters.js";
import { onceIn } from "./tables/once.js";
import { pinsIn } from "./tables/pins.js";
import { ledgersIn } from "./tables/ledgers.js";
import { replicasIn } from "./tables/replicas.js";
import { repositoriesIn } from "./tables/repositories.js";
import { secretsIn } from "./tables/secrets.js";
import { sessionsIn } from "./tables/sessions.js";
import { sweep } from "./tables/sweep.js";
import { tokensIn } from "./tables/tokens.js";
import { valuesIn } from "./tables/values.js";
import type { Dumps, Storage } from "./types.js";

export interface StorageOptions {
  /** Where the store is when no address is given. */
  readonly defaultFile?: string;
  /** How long an operation may take while the store is busy, away, or connected and silent. */
  readonly waitMs?: number | (() => number);
  /** Operations that may wait at once; more fail at once. */
  readonly maxWaiting?: number;
  /** PostgreSQL: connections of this process, besides the one that listens for changes. */
  readonly maxConnections?: number;
  /** PostgreSQL: the address of the connection that listens, where the store's is that of a pooler; `none` for polling only. */
  readonly listenUrl?: string;
  readonly statementTimeoutMs?: number;
  /** PostgreSQL: how long a transaction whose client is silent may stay open, and the longest wait for a lock. */
  readonly stalledTransactionMs?: number;
  /** How many runtime values an application may have. */
  readonly maxValues?: number;
  /** Between two rounds of removing what has expired; 0 for never. */
  readonly sweepMs?: number;
  /** Called before an older store is changed, inside the transaction that changes it: `copy` hands the store out. */
  readonly beforeMigration?: (copy: Dumps["write"], from: number, to: number) => Promise<void>;
  /** Which of the SQLite libraries; the one that comes with Node, where it does, unless said. */
  readonly sqliteLibrary?: SqliteLibrary;
  /** Called after each operation with its duration. */
  readonly observe?: ObserveStore;
}

const DEFAULTS = {
  waitMs: 5_000,
  maxWaiting: 10_000,
  maxConnections: 4,
  statementTimeoutMs: 10_000,
  stalledTransactionMs: 1_000,
  sweepMs: 60_000,
};

/** `sqlite:path`, `sqlite::memory:` or `postgres://user@host/database`. Makes the tables that are not there. */
export async function openStorage(url: string | undefined, options: StorageOptions = {}): Promise<Storage> {
  const origin = randomBytes(9).toString("base64url");
  const engine = await openEngine(url, origin, options);
  const on = (table: string): Engine => observed(engine, table, options.observe);
  const feed = new StoredFeed(on("feed"));
  const sweepMs = options.sweepMs ?? DEFAULTS.sweepMs;
  const stopSweeps = new AbortController();
  let round: Promise<void> | undefined;
  const sweeping = setInterval(() => {
    // A round that takes longer than the interval is not joined by a second one.
    round ??= sweep(engine, stopSweeps.signal)
      .catch(() => {})
      .finally(() => (round = undefined));
  }, sweepMs);
  sweeping.unref();
  if (sweepMs <= 0) clearInterval(sweeping);
  return {
    kind: engine.kind,
    origin,
    applications: applicationsIn(on("applications")),
    keys: keysIn(on("keys")),
    access: accessIn(on("access")),
    secrets: secretsIn(on("secrets")),
    pins: pinsIn(on("pins")),
    tokens: tokensIn(on("tokens")),
    challenges: challengesIn(on("challenges"), feed),
    sessions: sessionsIn(on("sessions")),
    values: valuesIn(on("values"), options.maxValues),
    repositories: repositoriesIn(on("repositories")),
    leases: leasesIn(on("leases")),
    replicas: replicasIn(on("replicas")),
    ledgers: ledgersIn(on("ledgers")),
    once: onceIn(on("once"), feed),
    letters: lettersIn(on("letters")),
    dumps: dumpsIn(engine),
    feed,
    settleRollback: (after, proof) => settleRollback(engine, after, proof),
    async ping() {
      await on("feed").read((sql) => sql.all("SELECT seq FROM feed"));
    },
    async now() {
      const [row] = await engine.read((sql) => sql.all("SELECT @now AS now"));
      return (row as Row).now as number;
    },
    async close() {
      clearInterval(sweeping);
      stopSweeps.abort();
      await round;
      await feed.close();
      await engine.close();
    },
  };
}

async function openEngine(url: string | undefined, origin: string, options: StorageOptions): Promise<Engine> {
  const address = url ?? (options.defaultFile === undefined ? undefined : `sqlite:${options.defaultFile}`);
  const { waitMs = DEFAULTS.waitMs } = options;
  const shared = {
    origin,
    waitMs: typeof waitMs === "function" ? waitMs : () => waitMs,
    maxWaiting: options.maxWaiting ?? DEFAULTS.maxWaiting,
  };
  const before =
    (kind: Engine["kind"]): BeforeMigration =>
    async (sql, from, to) =>
      options.beforeMigration?.(async (line) => dump(sql, kind, from, line), from, to);
  if (address?.startsWith("sqlite:")) {
    const file = address.slice("sqlite:".length).replace(/^\/\/(?=\/)/, "");
    if (file === "") throw new StorageError("STORAGE_INVALID", "sqlite: names no file; write sqlite:path/to/store.db");
    const path = file === ":memory:" ? file : resolve(file);
    return openSqlite(path, { ...shared, beforeMigration: before("sqlite"), library: options.sqliteLibrary });
  }
  if (address !== undefined && /^postgres(ql)?:\/\//.test(address)) {
    // Loaded only where it is used.
    const { openPostgres } = await import("./postgres/engine.js");
    return openPostgres(address, {
      ...shared,
      beforeMigration: before("postgres"),
      maxConnections: options.maxConnections ?? DEFAULTS.maxConnections,
      listenUrl: options.listenUrl,
      statementTimeoutMs: options.statementTimeoutMs ?? DEFAULTS.statementTimeoutMs,
      stalledTransactionMs: options.stalledTransactionMs ?? DEFAULTS.stalledTransactionMs,
    });
  }
  // The address may hold a password: it is not repeated.
  throw new StorageError("STORAGE_INVALID", "a store's address begins with sqlite: or postgres://");
}
