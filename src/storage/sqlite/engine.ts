// SQLite: one connection, one thing at a time. Calls are synchronous underneath, so each is kept short; when another
// process holds the file, this one waits without blocking its event loop.

import { closeSync, type FSWatcher, mkdirSync, openSync, rmSync, statSync, watch } from "node:fs";
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
import { openDriver, type SqliteDriver, type SqliteLibrary } from "./driver.js";

export interface SqliteOptions {
  readonly origin: string;
  /** How long an operation may wait for another process. */
  readonly waitMs: () => number;
  /** Operations that may wait for their turn. */
  readonly maxWaiting: number;
  readonly library?: SqliteLibrary | undefined;
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
  const engine = new SqliteEngine(file, openDriver(file, options.library), options);
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

/** "" where there is no such file. */
function identityOf(file: string): string {
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats === undefined ? "" : `${stats.dev} ${stats.ino}`;
}

class SqliteEngine implements Engine {
  readonly kind = "sqlite";
  readonly pollMs = POLL_MS;
  /** A key that was added or revoked on the command line counts when the command has ended. */
  readonly gatherMs = 0;
  readonly incarnation = "(SELECT id FROM store)";
  readonly latestChange = `SELECT seq, ${this.incarnation} AS incarnation FROM feed`;
  readonly #file: string;
  #driver: SqliteDriver;
  /** Identities of the file and of its journal that the driver has open; "" after a replacement that could not be opened. */
  #opened = "";
  #openedJournal = "";
  #reconnectedAt = Number.NEGATIVE_INFINITY;
  #stopWatching: (() => void) | undefined;
  readonly #options: SqliteOptions;
  readonly #sql: Sql;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #closed = false;
  readonly #listeners = new Set<() => void>();

  constructor(file: string, driver: SqliteDriver, options: SqliteOptions) {
    this.#file = file;
    this.#driver = driver;
    this.#options = options;
    this.#sql = { all: async (text, values = []) => this.#run(text, values) };
  }

  get reconnectedAt(): number {
    return this.#reconnectedAt;
  }

  async prepare(): Promise<void> {
    await this.#setUp();
    this.#opened = identityOf(this.#file);
    this.#openedJournal = identityOf(journalOf(this.#file));
  }

  async #setUp(): Promise<void> {
    this.#driver.all("PRAGMA busy_timeout = 10", []);
    this.#driver.all("PRAGMA foreign_keys = ON", []);
    // Changing the journal wants the file for itself, and so may have to wait.
    await this.#retried(async () => this.#driver.all("PRAGMA journal_mode = WAL", []));
    // A revoked key stays revoked when the power fails.
    this.#driver.all("PRAGMA synchronous = FULL", []);
    this.#driver.all("PRAGMA trusted_schema = OFF", []);
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
        this.#announce(notes);
        announced = notes.length > 0;
        return value;
      }),
    );
    if (announced) for (const notify of this.#listeners) notify();
    return result;
  }

  #inTransaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried(async () => {
      this.#run("BEGIN IMMEDIATE", []);
      try {
        const value = await work(this.#sql);
        this.#run("COMMIT", []);
        return value;
      } catch (error) {
        this.#rollBack();
        throw error;
      }
    });
  }

  snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#inTurn(async () => {
      // A deferred transaction sees the store as its first statement found it.
      await this.#retried(async () => this.#run("BEGIN", []));
      try {
        return await work(this.#sql);
      } finally {
        this.#rollBack();
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
    this.#driver.close();
  }

  /**
   * Opens the file that has taken the place of the one that is open, as a restore leaves it: other processes use that one,
   * so what is written to the old one would be lost. It is compared like a PostgreSQL server after a lost connection.
   */
  async #reopenReplaced(): Promise<void> {
    if (this.#file === ":memory:") return;
    const found = identityOf(this.#file);
    if (found === this.#opened) return;
    const unavailable = (problem: string, cause?: unknown): StorageError =>
      new StorageError("STORAGE_UNAVAILABLE", `the store ${this.#file} ${problem}: restore it as a whole`, cause);
    // The old file stays open, so that a new one cannot have its number.
    if (found === "") throw unavailable("was removed");
    this.#opened = "";
    // SQLite leaves the journal of a file that has moved; beside another file it would be read as that one's.
    this.#driver.close();
    if (this.#openedJournal !== "" && this.#openedJournal === identityOf(journalOf(this.#file))) {
      for (const end of ["-wal", "-shm"]) rmSync(this.#file + end, { force: true });
    }
    this.#openedJournal = "";
    try {
      this.#driver = openDriver(this.#file, this.#options.library);
      const tables = "SELECT name FROM sqlite_master WHERE name = 'portcullis_version'";
      if (this.#run(tables, []).length === 0) throw new Error("it has no tables");
      await this.#setUp();
    } catch (error) {
      throw unavailable("was replaced by a file that cannot be opened", error);
    }
    this.#opened = found;
    this.#openedJournal = identityOf(journalOf(this.#file));
    this.#reconnectedAt = performance.now();
    if (this.#listeners.size > 0) this.#watchJournal();
  }

  /** SQLite has one writer: the number is taken under the lock that the transaction holds anyway. */
  #announce(notes: readonly SqlNote[]): void {
    for (const { topic, action, app, name, by } of notes) {
      const seq = (this.#run("UPDATE feed SET seq = seq + 1 RETURNING seq", [])[0] as Row).seq as number;
      this.#run(
        `INSERT INTO changes (seq, topic, action, app, name, by_whom, at, origin)
         VALUES ($1, $2, $3, $4, $5, $6, @now, $7)`,
        [seq, topic, action, app, name, by, this.#options.origin],
      );
      if (seq % PRUNE_EVERY === 0) this.#run("DELETE FROM changes WHERE seq <= $1", [seq - KEPT_CHANGES]);
    }
  }

  #run(text: string, values: readonly SqlValue[]): Row[] {
    const { statement, order } = translate(text);
    return this.#driver.all(
      statement,
      order.map((i) => values[i] as SqlValue),
    );
  }

  #rollBack(): void {
    try {
      this.#run("ROLLBACK", []);
    } catch {
      // SQLite has rolled back by itself, as it does when the disk is full.
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", "the store is closed"));
    if (this.#waiting >= this.#options.maxWaiting) {
      const message = `${this.#waiting} operations already wait for the store; try again in a moment`;
      return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", message));
    }
    this.#waiting++;
    const mine = this.#turn
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
