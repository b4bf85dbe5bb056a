// SQLite: one connection, one thing at a time. When another process holds the file, this one waits without blocking its
// event loop.

import { closeSync, type FSWatcher, mkdirSync, openSync, rmSync, watch } from "node:fs";
import { dirname } from "node:path";
import { type BeforeMigration, migrate, SQLITE } from "../migrations.js";
import {
  backoff,
  type Engine,
  KEPT_CHANGES,
  PRUNE_EVERY,
  type Row,
  type Sql,
  type SqlNote,
  type SqlValue,
  StorageError,
} from "../sql.js";
import { openConnection, type SqliteConnection } from "./connection.js";
import type { SqliteLibrary } from "./driver.js";

export interface SqliteOptions {
  readonly origin: string;
  /** How long an operation may wait for another process. */
  readonly waitMs: () => number;
  /** Operations that may wait for their turn. */
  readonly maxWaiting: number;
  readonly library?: SqliteLibrary | undefined;
  /** On a thread of its own, so that a disk that does not answer blocks nothing but the store. */
  readonly isThreaded?: boolean | undefined;
  readonly beforeMigration?: BeforeMigration | undefined;
}

const POLL_MS = 250;
/** After the journal was written, its commit becomes visible within these times; polling finds a later one. */
const VISIBLE_AFTER_MS = [5, 15, 50, 100] as const;
const NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

export async function openSqlite(file: string, options: SqliteOptions): Promise<Engine> {
  if (file !== ":memory:") {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    create(file);
  }
  const engine = new SqliteEngine(file, await open(file, options), options);
  try {
    await engine.prepare();
  } catch (error) {
    await engine.close();
    throw error;
  }
  return engine;
}

/** Created here with owner-only access from its first byte on; the journal gets the same mode. */
function create(file: string): void {
  try {
    // INVARIANT: a file that is there is never opened but by SQLite. Closing it would drop the locks that another
    // connection of this process has on it, and other processes would then change it unseen.
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

const journalOf = (file: string): string => `${file}-wal`;

function open(file: string, { library, isThreaded, waitMs }: SqliteOptions): Promise<SqliteConnection> {
  return openConnection(file, { library, statementMs: isThreaded ? waitMs : undefined });
}

class SqliteEngine implements Engine {
  readonly kind = "sqlite";
  readonly pollMs = POLL_MS;
  /** A key that was added or revoked on the command line counts when the command has ended. */
  readonly gatherMs = 0;
  readonly incarnation = "(SELECT id FROM store)";
  readonly latestChange = `SELECT seq, ${this.incarnation} AS incarnation FROM feed`;
  readonly #file: string;
  #connection: SqliteConnection;
  /** Identities of the file and of its journal that the connection has open; "" after a replacement that could not be opened. */
  #opened = "";
  #openedJournal = "";
  #reconnectedAt = Number.NEGATIVE_INFINITY;
  #stopWatching: (() => void) | undefined;
  readonly #options: SqliteOptions;
  readonly #sql: Sql;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  /** A transaction was given up while its disk did not answer. */
  #isLeftOpen = false;
  #closed = false;
  readonly #listeners = new Set<() => void>();

  constructor(file: string, connection: SqliteConnection, options: SqliteOptions) {
    this.#file = file;
    this.#connection = connection;
    this.#options = options;
    this.#sql = { all: (text, values = []) => this.#run(text, values) };
  }

  get reconnectedAt(): number {
    return this.#reconnectedAt;
  }

  async prepare(): Promise<void> {
    await this.#setUp();
    [this.#opened, this.#openedJournal] = await this.#connection.identities();
  }

  async #setUp(): Promise<void> {
    await this.#connection.all("PRAGMA busy_timeout = 10", []);
    await this.#connection.all("PRAGMA foreign_keys = ON", []);
    // Changing the journal wants the file for itself, and so may have to wait.
    await this.#retried(() => this.#connection.all("PRAGMA journal_mode = WAL", []));
    // A revoked key stays revoked when the power fails.
    await this.#connection.all("PRAGMA synchronous = FULL", []);
    await this.#connection.all("PRAGMA trusted_schema = OFF", []);
    await this.#inTransaction((sql) => migrate(sql, SQLITE, this.#options.beforeMigration));
  }

  read<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#inTurn(() => this.#retried(() => work(this.#sql)));
  }

  async write<T>(work: (sql: Sql, note: (change: SqlNote) => void) => Promise<T>): Promise<T> {
    let announced = false;
    const result = await this.#inTurn(() =>
      this.#inTransaction(async (sql) => {
        const notes: SqlNote[] = [];
        const value = await work(sql, (change) => notes.push(change));
        await this.#announce(notes);
        announced = notes.length > 0;
        return value;
      }),
    );
    if (announced) for (const notify of this.#listeners) notify();
    return result;
  }

  #inTransaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried(async () => {
      await this.#run("BEGIN IMMEDIATE", []);
      try {
        const value = await work(this.#sql);
        await this.#run("COMMIT", []);
        return value;
      } catch (error) {
        await this.#rollBack();
        throw error;
      }
    });
  }

  snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#inTurn(async () => {
      // A deferred transaction sees the store as its first statement found it.
      await this.#retried(() => this.#run("BEGIN", []));
      try {
        return await work(this.#sql);
      } finally {
        await this.#rollBack();
      }
    });
  }

  async listen(onChange: () => void): Promise<() => Promise<void>> {
    this.#listeners.add(onChange);
    this.#watchJournal();
    return async () => {
      this.#listeners.delete(onChange);
      if (this.#listeners.size === 0) this.#stopWatching?.();
    };
  }

  #watchJournal(): void {
    if (this.#file === ":memory:") return;
    this.#stopWatching?.();
    this.#stopWatching = watchJournal(journalOf(this.#file), () => {
      for (const notify of this.#listeners) notify();
    });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#turn.catch(() => {});
    this.#closed = true;
    this.#stopWatching?.();
    await this.#connection.close();
  }

  /**
   * Opens the file that has taken the place of the one that is open, as a restore leaves it: other processes use that one,
   * so what is written to the old one would be lost. It is compared like a PostgreSQL server after a lost connection.
   */
  async #reopenReplaced(): Promise<void> {
    if (this.#file === ":memory:") return;
    const [found, journal] = await this.#connection.identities();
    if (found === this.#opened) return;
    const unavailable = (problem: string, cause?: unknown): StorageError =>
      new StorageError("STORAGE_UNAVAILABLE", `the store ${this.#file} ${problem}: restore it as a whole`, cause);
    // The old file stays open, so that a new one cannot have its number.
    if (found === "") throw unavailable("was removed");
    this.#opened = "";
    // SQLite leaves the journal of a file that has moved; beside another file it would be read as that one's.
    await this.#connection.close();
    if (this.#openedJournal !== "" && this.#openedJournal === journal) {
      for (const end of ["-wal", "-shm"]) rmSync(this.#file + end, { force: true });
    }
    this.#openedJournal = "";
    try {
      this.#connection = await open(this.#file, this.#options);
      const tables = "SELECT name FROM sqlite_master WHERE name = 'portcullis_version'";
      if ((await this.#run(tables, [])).length === 0) throw new Error("it has no tables");
      await this.#setUp();
    } catch (error) {
      throw unavailable("was replaced by a file that cannot be opened", error);
    }
    this.#opened = found;
    [, this.#openedJournal] = await this.#connection.identities();
    this.#reconnectedAt = performance.now();
    if (this.#listeners.size > 0) this.#watchJournal();
  }

  /** SQLite has one writer: the number is taken under the lock that the transaction holds anyway. */
  async #announce(notes: readonly SqlNote[]): Promise<void> {
    for (const { topic, action, app, name, by } of notes) {
      const [row] = await this.#run("UPDATE feed SET seq = seq + 1 RETURNING seq", []);
      const seq = (row as Row).seq as number;
      await this.#run(
        `INSERT INTO changes (seq, topic, action, app, name, by_whom, at, origin)
         VALUES ($1, $2, $3, $4, $5, $6, @now, $7)`,
        [seq, topic, action, app, name, by, this.#options.origin],
      );
      if (seq % PRUNE_EVERY === 0) await this.#run("DELETE FROM changes WHERE seq <= $1", [seq - KEPT_CHANGES]);
    }
  }

  #run(text: string, values: readonly SqlValue[]): Promise<Row[]> {
    const { statement, order } = translate(text);
    return this.#connection.all(
      statement,
      order.map((i) => values[i] as SqlValue),
    );
  }

  async #rollBack(): Promise<void> {
    // The disk has not answered: before the next operation.
    this.#isLeftOpen = this.#connection.isBusy;
    if (this.#isLeftOpen) return;
    // SQLite has rolled back by itself when the disk is full, and has committed when the answer came late.
    await this.#run("ROLLBACK", []).catch(() => {});
  }

  /** Waits, at most until `deadline`, for a disk that did not answer the operation before. */
  async #idle(deadline: number): Promise<void> {
    await this.#connection.idle(deadline - performance.now());
    if (this.#isLeftOpen) await this.#rollBack();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", "the store is closed"));
    if (this.#waiting >= this.#options.maxWaiting) {
      const message = `${this.#waiting} operations already wait for the store; try again in a moment`;
      return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", message));
    }
    this.#waiting++;
    const deadline = performance.now() + this.#options.waitMs();
    const mine = this.#turn
      .then(() => this.#idle(deadline))
      .then(() => this.#reopenReplaced())
      .then(work)
      .finally(() => {
        this.#waiting--;
      });
    this.#turn = mine.catch(() => {});
    return mine;
  }

  async #retried<T>(work: () => Promise<T>): Promise<T> {
    const withinMs = this.#options.waitMs();
    const waits = backoff(withinMs);
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!isBusy(error)) throw explained(error);
        if (!(await waits.pause())) {
          const message = `another process has held the store for ${withinMs} ms; nothing was written`;
          throw new StorageError("STORAGE_UNAVAILABLE", message, error);
        }
      }
    }
  }
}

interface Translated {
  readonly statement: string;
  readonly order: readonly number[];
}

const translations = new Map<string, Translated>();
const MAX_TRANSLATIONS = 500;

/** `$2` may stand anywhere and more than once; SQLite gets a `?` for each, and the values in that order. */
function translate(text: string): Translated {
  let found = translations.get(text);
  if (!found) {
    const order: number[] = [];
    const statement = text.replaceAll("@now", NOW).replace(/\$(\d+)/g, (_, n: string) => {
      order.push(Number(n) - 1);
      return "?";
    });
    found = { statement, order };
    if (translations.size >= MAX_TRANSLATIONS) translations.clear();
    translations.set(text, found);
  }
  return found;
}

interface SqliteFailure {
  readonly code?: string;
  readonly errcode?: number;
  readonly rawCode?: number;
  readonly message?: string;
}

const BUSY = 5;
const CONSTRAINT = 19;
const NOT_A_DATABASE = 26;

function primaryCode(error: unknown): number | undefined {
  const { errcode, rawCode } = error as SqliteFailure;
  const code = errcode ?? rawCode;
  return code === undefined ? undefined : code & 0xff;
}

function isBusy(error: unknown): boolean {
  return primaryCode(error) === BUSY;
}

function explained(error: unknown): unknown {
  const code = primaryCode(error);
  if (code === undefined) return error;
  const { message } = error as Error;
  if (code === CONSTRAINT) return new StorageError("STORAGE_INVALID", `the store refuses this: ${message}`, error);
  if (code === NOT_A_DATABASE) return new StorageError("STORAGE_VERSION", "the file is not a SQLite database", error);
  return new StorageError("STORAGE_UNAVAILABLE", `the store failed: ${message}`, error);
}

/**
 * Calls `onChange` soon after any process has written to the journal, so that a key revoked by a command ends here at once.
 * Where the system cannot watch files, polling remains.
 */
function watchJournal(file: string, onChange: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let next = 0;
  const schedule = (): void => {
    const ms = VISIBLE_AFTER_MS[next++];
    timer = ms === undefined ? undefined : setTimeout(look, ms).unref();
  };
  const look = (): void => {
    onChange();
    schedule();
  };
  let watcher: FSWatcher;
  try {
    watcher = watch(file, { persistent: false }, () => {
      next = 0;
      if (timer === undefined) schedule();
    });
  } catch {
    return () => {};
  }
  watcher.on("error", () => watcher.close());
  return () => {
    clearTimeout(timer);
    watcher.close();
  };
}
