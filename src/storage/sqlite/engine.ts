// SQLite: one connection, one thing at a time. Calls are synchronous underneath, so each is kept short; when another
// process holds the file, this one waits without blocking its event loop.

import { closeSync, type FSWatcher, mkdirSync, openSync, watch } from "node:fs";
import { dirname } from "node:path";
import { StorageError } from "../errors.js";
import { type BeforeMigration, migrate, SQLITE } from "../migrations.js";
import { backoff } from "../retry.js";
import { type Engine, KEPT_CHANGES, type SqlNote, PRUNE_EVERY, type Row, type Sql, type SqlValue } from "../sql.js";
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

/** Made here so that nobody else can read it from its first byte on; the journal gets the same mode. */
function create(file: string): void {
  try {
    // INVARIANT: a file that is there is never opened but by SQLite. Closing it would drop the locks that another
    // connection of this process has on it, and other processes would then change it unseen.
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

class SqliteEngine implements Engine {
  readonly kind = "sqlite";
  readonly pollMs = POLL_MS;
  /** A key that was added or revoked on the command line counts when the command has ended. */
  readonly gatherMs = 0;
  readonly latestChange = "SELECT seq FROM feed";
  readonly reconnectedAt = Number.NEGATIVE_INFINITY;
  readonly #file: string;
  readonly #driver: SqliteDriver;
  readonly #options: SqliteOptions;
  readonly #sql: Sql;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #closed = false;
  readonly #heard = new Set<() => void>();

  constructor(file: string, driver: SqliteDriver, options: SqliteOptions) {
    this.#file = file;
    this.#driver = driver;
    this.#options = options;
    this.#sql = { all: async (text, values = []) => this.#run(text, values) };
  }

  async prepare(): Promise<void> {
    this.#driver.all("PRAGMA busy_timeout = 10", []);
    this.#driver.all("PRAGMA foreign_keys = ON", []);
    // Changing the journal wants the file for itself, and so may have to wait.
    await this.#retried(async () => this.#driver.all("PRAGMA journal_mode = WAL", []));
    // A revoked key stays revoked when the power fails.
    this.#driver.all("PRAGMA synchronous = FULL", []);
    this.#driver.all("PRAGMA trusted_schema = OFF", []);
    await this.write((sql) => migrate(sql, SQLITE, this.#options.beforeMigration));
  }

  read<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#inTurn(() => this.#retried(() => work(this.#sql)));
  }

  async write<T>(work: (sql: Sql, note: (change: SqlNote) => void) => Promise<T>): Promise<T> {
    let announced = false;
    const result = await this.#inTurn(() =>
      this.#retried(async () => {
        this.#run("BEGIN IMMEDIATE", []);
        try {
          const notes: SqlNote[] = [];
          const value = await work(this.#sql, (change) => notes.push(change));
          this.#announce(notes);
          this.#run("COMMIT", []);
          announced = notes.length > 0;
          return value;
        } catch (error) {
          this.#rollBack();
          throw error;
        }
      }),
    );
    if (announced) for (const heard of this.#heard) heard();
    return result;
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

  async listen(heard: () => void): Promise<() => Promise<void>> {
    this.#heard.add(heard);
    const stopWatching = this.#file === ":memory:" ? undefined : watchJournal(`${this.#file}-wal`, heard);
    return async () => {
      stopWatching?.();
      this.#heard.delete(heard);
    };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#turn.catch(() => {});
    this.#closed = true;
    this.#driver.close();
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
    const mine = this.#turn.then(work, work).finally(() => {
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
  if (code === NOT_A_DATABASE) return new StorageError("STORAGE_VERSION", "the file is no SQLite database", error);
  return new StorageError("STORAGE_UNAVAILABLE", `the store failed: ${message}`, error);
}

/**
 * Calls `heard` soon after any process has written to the journal, so that a key revoked by a command ends here at once.
 * Where the system cannot watch files, polling remains.
 */
function watchJournal(file: string, heard: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let next = 0;
  const schedule = (): void => {
    const ms = VISIBLE_AFTER_MS[next++];
    timer = ms === undefined ? undefined : setTimeout(look, ms).unref();
  };
  const look = (): void => {
    heard();
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
