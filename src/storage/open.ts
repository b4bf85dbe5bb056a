// Durations of the store's operations, by the part of the store that they concern.

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { dump, dumpsIn, settleRollback } from "./dump.js";
import { incarnationOf, StoredFeed } from "./feed.js";
import type { BeforeMigration } from "./migrations.js";
import { type Engine, type Row, StorageError } from "./sql.js";
import type { SqliteLibrary } from "./sqlite/driver.js";
import { openSqlite } from "./sqlite/engine.js";
import { applicationsIn } from "./tables/applications.js";
import { challengesIn } from "./tables/challenges.js";
import { haltsIn } from "./tables/halts.js";
import { accessIn, keysIn } from "./tables/keys.js";
import { onceIn } from "./tables/once.js";
import { pinsIn } from "./tables/pins.js";
import { leasesIn, ledgersIn, replicaMessagesIn, replicasIn } from "./tables/replicas.js";
import { repositoriesIn } from "./tables/repositories.js";
import { sessionsIn } from "./tables/sessions.js";
import { secretsIn, tokensIn } from "./tables/tokens.js";
import { valuesTable } from "./tables/values.js";
import type { Dumps, Storage } from "./types.js";

export interface StoreOperation {
  readonly kind: Engine["kind"];
  readonly table: string;
  readonly operation: "read" | "write";
  /** Waits and retries included. */
  readonly seconds: number;
  /** Code of the error that ended it; "" when it succeeded. */
  readonly error: string;
}

export type ObserveStore = (operation: StoreOperation) => void;

/** The same engine, with `observe` called after each read and write. */
export function observed(engine: Engine, table: string, observe: ObserveStore | undefined): Engine {
  if (!observe) return engine;
  const timed = async <T>(operation: StoreOperation["operation"], work: () => Promise<T>): Promise<T> => {
    const startedAt = performance.now();
    let error = "";
    try {
      return await work();
    } catch (thrown) {
      error = thrown instanceof StorageError ? thrown.code : "error";
      throw thrown;
    } finally {
      observe({ kind: engine.kind, table, operation, seconds: (performance.now() - startedAt) / 1_000, error });
    }
  };
  return {
    kind: engine.kind,
    latestChange: engine.latestChange,
    incarnation: engine.incarnation,
    pollMs: engine.pollMs,
    gatherMs: engine.gatherMs,
    get reconnectedAt() {
      return engine.reconnectedAt;
    },
    read: (work) => timed("read", () => engine.read(work)),
    write: (work) => timed("write", () => engine.write(work)),
    snapshot: (work) => engine.snapshot(work),
    listen: (onChange, onReconnect) => engine.listen(onChange, onReconnect),
    close: () => engine.close(),
  };
}

/** Rows of one transaction: few, because SQLite blocks the event loop and PostgreSQL holds their locks meanwhile. */
const AT_ONCE = 1_000;
/** An ended challenge can be asked about for a while. */
const CHALLENGES_KEPT_MS = 3_600_000;
/** Far longer than any client waits for the outcome of a commit. */
const COMMITS_KEPT_MS = 3_600_000;
const REPLICAS_KEPT_MS = 7 * 24 * 3_600_000;

/** A ledger that was away for longer begins where the furthest one is. */
const RECORDED_KEPT_MS = 90 * 24 * 3_600_000;

type Sweep = readonly [statement: (lock: string) => string, olderMs: number];

const SWEEPS: readonly Sweep[] = [
  // Of an expired approval request the large part goes at once.
  [
    (lock) => `UPDATE challenges SET payload = '{}' WHERE id IN (SELECT id FROM challenges
       WHERE expires_at < @now - CAST($1 AS BIGINT) AND payload <> '{}' LIMIT $2 ${lock}) RETURNING 1 AS one`,
    0,
  ],
  [removal("challenges", "id", "expires_at"), CHALLENGES_KEPT_MS],
  [removal("sessions", "id", "expires_at"), 0],
  [removal("spent", "key", "expires_at"), 0],
  [removal("letters", "id", "expires_at"), 0],
  [removal("leases", "key", "tat"), 0],
  [removal("replicas", "id", "seen_at"), REPLICAS_KEPT_MS],
  [
    (lock) => `DELETE FROM recorded WHERE ledger IN (SELECT ledger FROM recorded
       WHERE at < @now - CAST($1 AS BIGINT) AND seq < (SELECT MAX(seq) FROM recorded) LIMIT $2 ${lock})
       RETURNING 1 AS one`,
    RECORDED_KEPT_MS,
  ],
  [removal("runtime_values", "app, key", "expires_at"), 0],
];

const POSTGRES_SWEEPS: readonly Sweep[] = [[removal("commits", "id", "at"), COMMITS_KEPT_MS]];

function removal(table: string, id: string, time: string): Sweep[0] {
  return (lock) => `DELETE FROM ${table} WHERE (${id}) IN
    (SELECT ${id} FROM ${table} WHERE ${time} < @now - CAST($1 AS BIGINT) LIMIT $2 ${lock}) RETURNING 1 AS one`;
}

/**
 * Removes everything that has expired, in batches: a round ends when a batch is not full, so it keeps up with any rate
 * of writes. One table's failure does not keep the others; the first is thrown in the end.
 */
export async function sweep(engine: Engine, stop?: AbortSignal): Promise<void> {
  const isPostgres = engine.kind === "postgres";
  // Replicas that sweep together take different rows, and a row that was renewed meanwhile stays.
  const lock = isPostgres ? "FOR UPDATE SKIP LOCKED" : "";
  const failures: unknown[] = [];
  for (const [statement, olderMs] of isPostgres ? [...SWEEPS, ...POSTGRES_SWEEPS] : SWEEPS) {
    const text = statement(lock);
    try {
      let removed = AT_ONCE;
      while (removed === AT_ONCE && !stop?.aborted) {
        removed = (await engine.write((sql) => sql.all(text, [olderMs, AT_ONCE]))).length;
      }
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

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
  /** Which of the SQLite libraries; the one that comes with Node, where it does, unless given. */
  readonly sqliteLibrary?: SqliteLibrary;
  /** SQLite: on a thread of its own, so that an operation is bounded by `waitMs` when the disk does not answer. */
  readonly isThreaded?: boolean;
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
    keys: keysIn(on("keys"), feed),
    access: accessIn(on("access"), feed),
    secrets: secretsIn(on("secrets")),
    pins: pinsIn(on("pins")),
    tokens: tokensIn(on("tokens")),
    challenges: challengesIn(on("challenges"), feed),
    sessions: sessionsIn(on("sessions")),
    values: valuesTable(on("values"), options.maxValues),
    repositories: repositoriesIn(on("repositories")),
    leases: leasesIn(on("leases")),
    replicas: replicasIn(on("replicas")),
    ledgers: ledgersIn(on("ledgers")),
    halts: haltsIn(on("halts")),
    once: onceIn(on("once"), feed),
    replicaMessages: replicaMessagesIn(on("letters")),
    dumps: dumpsIn(engine),
    feed,
    settleRollback: (after, proof) => settleRollback(engine, after, proof),
    async ping() {
      const text = `SELECT seq, ${engine.incarnation} AS incarnation FROM feed`;
      incarnationOf((await on("feed").read((sql) => sql.all(text)))[0]);
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
    return openSqlite(path, {
      ...shared,
      beforeMigration: before("sqlite"),
      library: options.sqliteLibrary,
      isThreaded: options.isThreaded,
    });
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
