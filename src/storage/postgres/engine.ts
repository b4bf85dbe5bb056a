// PostgreSQL for several replicas. A write is one transaction that leaves a mark: when the connection breaks during the
// commit, the mark shows its outcome, and the write is neither lost nor done twice.

import { randomBytes } from "node:crypto";
import { Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { type BeforeMigration, migrate, POSTGRES } from "../migrations.js";
import { type Backoff, backoff, type Engine, type Row, type Sql, type SqlNote, StorageError } from "../sql.js";
import { explained, isBroken, isPassing, listen } from "./connection.js";

export interface PostgresOptions {
  readonly origin: string;
  /** How long an operation tries again while the server is away. */
  readonly waitMs: () => number;
  readonly maxWaiting: number;
  readonly maxConnections: number;
  /** Where notifications come from, when the address of everything else is that of a pooler; `none` for polling only. */
  readonly listenUrl?: string | undefined;
  /** One statement, by the server's clock. */
  readonly statementTimeoutMs: number;
  /** How long a transaction whose client is silent may stay open, and how long a statement waits for its locks. */
  readonly stalledTransactionMs: number;
  readonly beforeMigration?: BeforeMigration | undefined;
}

/** The notification is quicker; this finds what it missed. */
const POLL_MS = 500;
const NOW = "CAST(extract(epoch from statement_timestamp()) * 1000 AS BIGINT)";
/** Migrations of replicas that start together wait for each other on this number. */
const MIGRATION_LOCK = 7_042_160;
/**
 * The transaction that wrote the row differs after the row was written again, from a dump as well. A restore adds foreign
 * keys at its very end: without them it has not finished.
 */
const INCARNATION = `(SELECT id || ' ' || CAST(xmin AS TEXT) FROM store WHERE 4 = (SELECT count(*) FROM pg_constraint
  WHERE contype = 'f' AND conrelid IN (to_regclass('keys'), to_regclass('packs'), to_regclass('repositories'),
    to_regclass('secrets'))))`;
const INT8 = 20;
/** For the answer of a statement that the server has ended after its timeout. */
const GRACE_MS = 2_000;
/** A connection that is not ready by then does not keep its place in the pool. */
const CONNECT_MS = 1_500;
/** How long connections get to end in order when the store is closed. */
const END_MS = 500;

export async function openPostgres(url: string, options: PostgresOptions): Promise<Engine> {
  const engine = new PostgresEngine(url, options);
  try {
    await engine.prepare();
  } catch (error) {
    await engine.close();
    throw error;
  }
  return engine;
}

class PostgresEngine implements Engine {
  readonly kind = "postgres";
  readonly pollMs = POLL_MS;
  /** Every replica reads every change. */
  readonly gatherMs = 50;
  readonly incarnation = INCARNATION;
  readonly latestChange = `SELECT portcullis_number_changes() AS seq, ${INCARNATION} AS incarnation`;
  readonly #pool: pg.Pool;
  readonly #options: PostgresOptions;
  readonly #settings: pg.ClientConfig;
  readonly #timeouts: Readonly<Record<string, number>>;
  readonly #listeners = new Set<() => void>();
  readonly #sockets = new Set<Socket>();
  #closed = false;
  #isLost = false;
  #reconnectedAt = Number.NEGATIVE_INFINITY;
  #marks = false;
  #numbering: Promise<void> | undefined;
  #numberAgain = false;

  constructor(url: string, options: PostgresOptions) {
    this.#options = options;
    this.#settings = {
      connectionString: url,
      application_name: "portcullis",
      connectionTimeoutMillis: CONNECT_MS,
      query_timeout: options.statementTimeoutMs + GRACE_MS,
      keepAlive: true,
      stream: () => this.#socket(),
      types: { getTypeParser: (id: number, format?: "text" | "binary") => parser(id, format) } as pg.CustomTypesConfig,
    };
    this.#timeouts = {
      statement_timeout: options.statementTimeoutMs,
      // A statement that gives up its wait is tried again: by then the server has ended the client that stalled.
      lock_timeout: options.stalledTransactionMs,
      idle_in_transaction_session_timeout: options.stalledTransactionMs,
    };
    this.#pool = new pg.Pool({
      ...this.#settings,
      max: options.maxConnections,
      idleTimeoutMillis: 30_000,
      // Not as parameters of the connection: PgBouncer refuses connections that have them.
      onConnect: (client) =>
        client.query({ text: `SELECT ${this.#timeoutsFor("session")}`, query_timeout: CONNECT_MS } as pg.QueryConfig),
    });
    // An idle connection that the server ends is simply one fewer.
    this.#pool.on("error", () => {
      this.#isLost = true;
    });
    // One that breaks while it is used, or after it was given back as broken, fails its next statement by itself. Without
    // a listener for its whole life the event would end the process.
    this.#pool.on("connect", (client) => {
      if (this.#isLost) this.#reconnectedAt = performance.now();
      this.#isLost = false;
      client.on("error", () => {
        this.#isLost = true;
      });
    });
  }

  get reconnectedAt(): number {
    return this.#reconnectedAt;
  }

  async prepare(): Promise<void> {
    // A server that does not answer is reported as soon as for any other operation; a migration may take longer.
    const withinMs = Math.max(this.#options.waitMs(), CONNECT_MS);
    await this.#retried((waits) => this.#connected((client) => sqlOn(client, waits).all("SELECT 1"), waits), withinMs);
    const migrationMs = this.#options.statementTimeoutMs + GRACE_MS;
    await this.#write(async (sql) => {
      // A migration may take longer than a statement usually waits.
      await sql.all(`SET LOCAL lock_timeout = ${Math.ceil(this.#options.statementTimeoutMs)}`);
      // A copy of the store may be written in between.
      await sql.all("SET LOCAL idle_in_transaction_session_timeout = 60000");
      await sql.all("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
      await migrate(sql, POSTGRES, this.#options.beforeMigration);
    }, migrationMs);
    this.#marks = true;
  }

  read<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#retried((waits) => this.#connected((client) => work(sqlOn(client, waits)), waits));
  }

  write<T>(work: (sql: Sql, note: (change: SqlNote) => void) => Promise<T>): Promise<T> {
    return this.#write(work, this.#options.waitMs());
  }

  async #write<T>(work: (sql: Sql, note: (change: SqlNote) => void) => Promise<T>, withinMs: number): Promise<T> {
    let announced = false;
    const result = await this.#retried(async (waits) => {
      const notes: SqlNote[] = [];
      let value: { done: T } | undefined;
      let committing: Mark | undefined;
      try {
        await this.#connected(async (client) => {
          const mark = await this.#begin(client, waits);
          const sql = sqlOn(client, waits);
          value = { done: await work(sql, (change) => notes.push(change)) };
          await this.#announce(sql, notes);
          committing = mark;
          const { command } = await client.query(bounded("COMMIT", waits));
          if (command !== "COMMIT") throw new StorageError("STORAGE_UNAVAILABLE", "PostgreSQL rolled the write back");
        }, waits);
      } catch (error) {
        if (committing === undefined || !isBroken(error)) throw error;
        if (!(await this.#hasCommitted(committing, waits))) throw error;
      }
      announced = notes.length > 0;
      return (value as { done: T }).done;
    }, withinMs);
    if (announced) this.#number();
    return result;
  }

  async snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    // What is committed gets its number first.
    await this.read((sql) => sql.all(this.latestChange));
    // A copy takes as long as its longest statement may, not as long as a caller waits.
    const waits = backoff(this.#options.statementTimeoutMs);
    return this.#connected(async (client) => {
      await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
      const result = await work(sqlOn(client, waits));
      await client.query("COMMIT");
      return result;
    }, waits);
  }

  async listen(onChange: () => void, onReconnect: () => void): Promise<() => Promise<void>> {
    this.#listeners.add(onChange);
    const { listenUrl } = this.#options;
    const settings = listenUrl === undefined ? this.#settings : { ...this.#settings, connectionString: listenUrl };
    const stop = listenUrl === "none" ? undefined : await listen(settings, onChange, onReconnect);
    return async () => {
      this.#listeners.delete(onChange);
      await stop?.();
    };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#numbering;
    // A connection whose peer is silent would not end by itself.
    await Promise.race([this.#pool.end(), wait(END_MS, undefined, { ref: false })]);
    for (const socket of this.#sockets) socket.destroy();
  }

  #socket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    return socket.once("close", () => this.#sockets.delete(socket));
  }

  async #announce(sql: Sql, notes: readonly SqlNote[]): Promise<void> {
    for (const { topic, action, app, name, by } of notes) {
      await sql.all(
        `INSERT INTO unnumbered_changes (topic, action, app, name, by_whom, at, origin)
         VALUES ($1, $2, $3, $4, $5, @now, $6)`,
        [topic, action, app, name, by, this.#options.origin],
      );
    }
  }

  /**
   * Numbers what was committed, after the commit: listeners of every replica are notified then. When it fails, the next
   * poll of any replica does it.
   */
  #number(): void {
    if (this.#numbering) {
      this.#numberAgain = true;
      return;
    }
    const waits = backoff(this.#options.waitMs());
    this.#numbering = this.#connected((client) => client.query(bounded(this.latestChange, waits)), waits)
      .then(
        () => {
          for (const notify of this.#listeners) notify();
        },
        () => {},
      )
      .then(() => {
        this.#numbering = undefined;
        if (!this.#numberAgain || this.#closed) return;
        this.#numberAgain = false;
        this.#number();
      });
  }

  async #connected<T>(work: (client: pg.PoolClient) => Promise<T>, waits: Backoff): Promise<T> {
    if (this.#closed) throw new StorageError("STORAGE_UNAVAILABLE", "the store is closed");
    if (this.#pool.waitingCount >= this.#options.maxWaiting) {
      const message = `${this.#pool.waitingCount} operations already wait for the store; try again in a moment`;
      throw new StorageError("STORAGE_UNAVAILABLE", message);
    }
    const client = await this.#connect(waits.leftMs);
    let broken = false;
    try {
      return await work(client);
    } catch (error) {
      broken = isBroken(error) && !(error instanceof StorageError);
      if (broken) this.#isLost = true;
      if (!broken) await client.query(bounded("ROLLBACK", waits)).catch(() => (broken = true));
      throw error;
    } finally {
      client.release(broken);
    }
  }

  /** The pool's own timeout begins anew with each attempt. */
  async #connect(withinMs: number): Promise<pg.PoolClient> {
    const connecting = this.#pool.connect();
    const stop = new AbortController();
    const late = wait(withinMs, undefined, { signal: stop.signal }).catch(() => undefined);
    try {
      const client = await Promise.race([connecting, late]);
      if (client) return client;
    } finally {
      stop.abort();
    }
    void connecting.then(
      (client) => client.release(),
      () => {},
    );
    throw new StorageError("STORAGE_UNAVAILABLE", "timeout exceeded when trying to connect");
  }

  async #retried<T>(work: (waits: Backoff) => Promise<T>, withinMs = this.#options.waitMs()): Promise<T> {
    const waits = backoff(withinMs);
    for (;;) {
      try {
        return await work(waits);
      } catch (error) {
        if (!isPassing(error)) throw explained(error);
        if (!(await waits.pause())) {
          const message = `PostgreSQL has not answered for ${withinMs} ms; nothing was written`;
          throw new StorageError("STORAGE_UNAVAILABLE", message, error);
        }
      }
    }
  }

  /** Behind PgBouncer in transaction mode only those of a transaction are certain to be in force. */
  #timeoutsFor(scope: "session" | "transaction"): string {
    const each = Object.entries(this.#timeouts);
    return each.map(([name, ms]) => `set_config('${name}', '${Math.ceil(ms)}', ${scope === "transaction"})`).join(", ");
  }

  /** Begins, leaves the mark, and reads the transaction's number, in one round trip. */
  async #begin(client: pg.PoolClient, waits: Backoff): Promise<Mark> {
    const id = randomBytes(16).toString("hex");
    // Before the first migration there is no table for marks; the migration itself may well be run twice.
    const mark = this.#marks ? `INSERT INTO commits (id, at) VALUES ('${id}', ${NOW});` : "";
    const results = (await client.query(
      bounded(
        `BEGIN; SELECT ${this.#timeoutsFor("transaction")}; ${mark} SELECT CAST(pg_current_xact_id() AS TEXT) AS number`,
        waits,
      ),
    )) as unknown as pg.QueryResult<{ number: string }>[];
    const [row] = results.at(-1)?.rows ?? [];
    if (!row) throw new StorageError("STORAGE_UNAVAILABLE", "PostgreSQL began no transaction");
    return { id, number: row.number };
  }

  /** The number alone does not show the outcome: after a crash it may be given to another transaction. */
  async #isUnderWay(number: string, waits: Backoff): Promise<boolean> {
    try {
      const text = "SELECT pg_xact_status(CAST($1 AS xid8)) AS status";
      const { rows } = await this.#connected(
        (client) => client.query<{ status: string | null }>(bounded(text, waits), [number]),
        waits,
      );
      return rows[0]?.status === "in progress";
    } catch (error) {
      if ((error as { code?: string }).code === IN_THE_FUTURE) return false;
      throw error;
    }
  }

  /** True, false, or `STORAGE_UNCERTAIN` when the server does not answer in time. */
  async #hasCommitted({ id, number }: Mark, waits: Backoff): Promise<boolean> {
    let last: unknown;
    do {
      try {
        if (!(await this.#isUnderWay(number, waits))) {
          const text = "SELECT id FROM commits WHERE id = $1";
          const { rows } = await this.#connected((client) => client.query(bounded(text, waits), [id]), waits);
          return rows.length > 0;
        }
        last = new Error(`transaction ${number} is in progress`);
      } catch (error) {
        if (!isPassing(error)) throw error;
        last = error;
      }
    } while (await waits.pause());
    const message =
      "PostgreSQL went away during a commit and has not come back; the write may or may not have happened";
    throw new StorageError("STORAGE_UNCERTAIN", message, last);
  }
}

/** PostgreSQL crashed before it wrote down that it had given out this number. */
const IN_THE_FUTURE = "22023";

interface Mark {
  readonly id: string;
  readonly number: string;
}

/** A statement that is given up when its operation has no time left: the server may be there and never answer. */
function bounded(text: string, waits: Backoff): pg.QueryConfig {
  return { text, query_timeout: waits.leftMs } as pg.QueryConfig;
}

function sqlOn(client: pg.PoolClient, waits: Backoff): Sql {
  return {
    async all(text, values = []) {
      const { rows } = await client.query<Row>(bounded(text.replaceAll("@now", NOW), waits), values as unknown[]);
      return rows;
    },
  };
}

/** Whole numbers of eight bytes are counters and times here, and fit a number. */
function parser(id: number, format: "text" | "binary" = "text"): (text: string) => unknown {
  if (id === INT8) return Number;
  return pg.types.getTypeParser(id, format as "text") as (text: string) => unknown;
}
