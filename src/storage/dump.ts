// A copy of the whole store as text, the same for both backends: a header, each table with its columns and rows, and an
// end line. Loading it into a store never takes back what must not be taken back: a key that was revoked, a nonce that
// was spent, a token of a limit that was used, an approval that was redeemed.

import { randomBytes } from "node:crypto";
import { LEVEL, migrateBack, POSTGRES, SQLITE, tablesAt } from "./migrations.js";
import { type Engine, type Row, type Sql, type SqlValue, StorageError } from "./sql.js";
import type { DumpHeader, Dumps, LoadReport, StoreLoadOptions } from "./types.js";

const FORMAT = 1;
const ROWS_AT_ONCE = 200;
/** Parts of packs have up to 4 MiB each. */
const LARGE_ROWS_AT_ONCE = 4;
const INSERTED_AT_ONCE = 100;
const MAX_LINE_CHARS = 64 * 1024 * 1024;
const MAX_REPORTED = 1_000;

/** Belongs to processes and connections that are gone when the copy is loaded. */
const NOT_COPIED = new Set(["commits", "sessions", "letters", "replicas"]);
/** What is in the store stays and the copy is added to it. */
const MERGED = new Set(["spent", "leases", "ledgers", "recorded", "access", "store", "feed", "halts"]);
/** Others refer to their rows. */
const FIRST = ["applications", "repositories"];
/** Of the changes that have a number. */
const LATEST = "SELECT max(seq) AS seq FROM (SELECT seq FROM feed UNION ALL SELECT seq FROM changes) AS numbered";
/** Has the key that replicas share as its token; no application can have this name. */
export const SHARED_KEY_APP = "~gateway";

type Encoded = string | number | null | { readonly b: string };

export function dumpsIn(engine: Engine): Dumps {
  return {
    write: (line) => engine.snapshot((sql) => dump(sql, engine.kind, LEVEL, line)),
    level: LEVEL,
    downgrade: () => engine.write((sql) => migrateBack(sql, engine.kind === "sqlite" ? SQLITE : POSTGRES)),
    isEmpty: () =>
      engine.read(async (sql) => {
        const [feed] = await sql.all(engine.latestChange);
        return (feed as Row).seq === 0 && (await sql.all("SELECT id FROM applications LIMIT 1")).length === 0;
      }),
    load: (lines, options) => load(engine, lines, options),
  };
}

/** Writes the tables of this level, as the transaction of `sql` sees them. */
export async function dump(
  sql: Sql,
  kind: Engine["kind"],
  level: number,
  write: (line: string) => Promise<void>,
): Promise<DumpHeader> {
  const [facts] = await sql.all("SELECT @now AS at");
  const [feed] = await sql.all(LATEST);
  const [store] = level >= 3 ? await sql.all("SELECT id FROM store") : [];
  const header = {
    portcullis_store: FORMAT,
    level,
    kind,
    epoch: (store?.id as string | undefined) ?? "",
    seq: (feed as Row).seq as number,
    at: (facts as Row).at as number,
  } as const;
  await write(JSON.stringify(header));
  let total = 0;
  for (const table of inOrder(tablesAt(level, kind === "sqlite" ? SQLITE : POSTGRES))) {
    if (NOT_COPIED.has(table)) continue;
    const columns = await columnsOf(sql, kind, table);
    await write(JSON.stringify({ table, columns }));
    await eachRow(sql, kind, table, columns, async (row) => {
      total++;
      await write(JSON.stringify(columns.map((column) => encode(row[column] as SqlValue))));
    });
  }
  await write(JSON.stringify({ end: true, rows: total }));
  return { ...header, rows: total };
}

function inOrder(tables: readonly string[]): string[] {
  return [...FIRST.filter((table) => tables.includes(table)), ...tables.filter((table) => !FIRST.includes(table))];
}

async function columnsOf(sql: Sql, kind: Engine["kind"], table: string): Promise<string[]> {
  const rows =
    kind === "sqlite"
      ? await sql.all(`SELECT name FROM pragma_table_info('${table}') ORDER BY cid`)
      : await sql.all(
          `SELECT column_name AS name FROM information_schema.columns
           WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position`,
          [table],
        );
  return rows.map(({ name }) => name as string);
}

async function eachRow(
  sql: Sql,
  kind: Engine["kind"],
  table: string,
  columns: readonly string[],
  take: (row: Row) => Promise<void>,
): Promise<void> {
  const limit = table === "packs" ? LARGE_ROWS_AT_ONCE : ROWS_AT_ONCE;
  if (kind === "postgres") {
    await sql.all(`DECLARE portcullis_dump NO SCROLL CURSOR FOR SELECT ${columns.join(", ")} FROM ${table}`);
    for (;;) {
      const rows = await sql.all(`FETCH ${limit} FROM portcullis_dump`);
      for (const row of rows) await take(row);
      if (rows.length < limit) break;
    }
    await sql.all("CLOSE portcullis_dump");
    return;
  }
  const text = `SELECT rowid AS dump_row, ${columns.join(", ")} FROM ${table} WHERE rowid > $1 ORDER BY rowid LIMIT ${limit}`;
  for (let last = 0; ; ) {
    const rows = await sql.all(text, [last]);
    for (const row of rows) await take(row);
    if (rows.length < limit) return;
    last = rows.at(-1)?.dump_row as number;
  }
}

function encode(value: SqlValue): Encoded {
  // One of the libraries for SQLite answers with an `ArrayBuffer`.
  return value !== null && typeof value === "object" ? { b: Buffer.from(value).toString("base64") } : value;
}

function decode(value: Encoded): SqlValue {
  if (value === null || typeof value !== "object") return value;
  if (typeof value.b === "string") return Buffer.from(value.b, "base64");
  throw damaged("a value is neither text, number nor bytes");
}

// ---- reading --------------------------------------------------------------------------------------------------------

export interface DumpedRow {
  readonly table: string;
  readonly row: Row;
}

/** Reads a copy and checks its form: a header that this program understands, rows that fit their columns, the end. */
export async function* readDump(lines: AsyncIterable<string>): AsyncGenerator<DumpHeader | DumpedRow> {
  let header: DumpHeader | undefined;
  let table = "";
  let columns: readonly string[] = [];
  let rows = 0;
  let hasEnded = false;
  for await (const line of lines) {
    const value = parse(line);
    if (hasEnded) throw damaged("lines follow its end");
    if (!header) {
      header = headerOf(value);
      yield header;
    } else if (Array.isArray(value)) {
      if (table === "" || value.length !== columns.length) throw damaged(`a row of \`${table}\` does not fit`);
      rows++;
      yield { table, row: Object.fromEntries(columns.map((name, i) => [name, decode(value[i] as Encoded)])) };
    } else if ("table" in value) {
      ({ table, columns } = value as { table: string; columns: string[] });
      if (![table, ...columns].every((name) => /^[a-z_]{1,63}$/.test(name))) throw damaged("a table's name is invalid");
    } else {
      if (value.rows !== rows) throw damaged(`it has ${rows} rows, and its last line states ${String(value.rows)}`);
      hasEnded = true;
    }
  }
  if (!hasEnded) throw damaged("its end is missing");
}

function parse(line: string): Record<string, unknown> | unknown[] {
  try {
    if (line.length <= MAX_LINE_CHARS) return JSON.parse(line) as Record<string, unknown>;
  } catch {
    // Reported below.
  }
  throw damaged("a line is not JSON, or too long");
}

function headerOf(value: Record<string, unknown> | unknown[]): DumpHeader {
  const header = value as unknown as DumpHeader & { portcullis_store?: unknown };
  if (header.portcullis_store !== FORMAT) throw damaged("its first line is not the header of a copy");
  if (!Number.isSafeInteger(header.level) || header.level < 1) throw damaged("its level is not a number");
  if (header.level > LEVEL) {
    const message = `the copy of the store has level ${header.level}, this program knows ${LEVEL}`;
    throw new StorageError("STORAGE_VERSION", message);
  }
  return header;
}

function damaged(why: string): StorageError {
  return new StorageError("STORAGE_INVALID", `the copy of the store is damaged: ${why}`);
}

// ---- loading --------------------------------------------------------------------------------------------------------

function load(engine: Engine, lines: () => AsyncIterable<string>, options: StoreLoadOptions): Promise<LoadReport> {
  return engine.write(async (sql, note) => {
    const types = engine.kind === "sqlite" ? SQLITE : POSTGRES;
    const tables = inOrder(tablesAt(LEVEL, types));
    if (engine.kind === "postgres") {
      // Readers continue to see what was there; writers wait for the end.
      await sql.all(`LOCK TABLE ${tables.join(", ")} IN EXCLUSIVE MODE`);
      await numberLeftovers(sql);
    }
    const before = await contentOf(sql);
    const [feed] = await sql.all(LATEST);
    for (const table of tables.toReversed()) if (!MERGED.has(table)) await clear(sql, table);
    const loading = new Loading(sql, engine.kind);
    const leftovers: Row[] = [];
    let header: DumpHeader | undefined;
    for await (const each of readDump(lines())) {
      if (!("table" in each)) header = each;
      else if (each.table === "unnumbered_changes") leftovers.push(each.row);
      else await loading.take(each.table, each.row);
    }
    await loading.flush();
    const copied = (header as DumpHeader).seq;
    for (const [i, row] of leftovers.entries()) {
      const { id: _, ...change } = row;
      await loading.insert("changes", { seq: copied + i + 1, ...change });
    }
    await loading.flush();
    await sql.all("UPDATE access SET has_credentials = 1 WHERE EXISTS (SELECT 1 FROM keys)");
    // A new epoch: what replicas keep beside the store does not belong to it any more.
    await sql.all("UPDATE store SET id = $1", [randomBytes(16).toString("hex")]);
    // A number is skipped on purpose: watchers of the feed then read everything again.
    const seq = Math.max((feed as Row).seq as number, copied + leftovers.length) + 1;
    await sql.all("UPDATE feed SET seq = $1", [seq]);
    const revoked = await keepRevoked(sql, before.revoked, options.revoke ?? []);
    note({ topic: "store", action: "restored", app: "", name: options.name, by: options.by });
    return report(before, await contentOf(sql), revoked, loading.expiredApprovals);
  });
}

/** Those that were committed and not numbered yet belong to the store that is replaced. */
async function numberLeftovers(sql: Sql): Promise<void> {
  await sql.all("SELECT portcullis_number_changes() AS seq");
}

async function clear(sql: Sql, table: string): Promise<void> {
  // The key that replicas share stays: request states of the copy's time must not count again.
  const except = table === "tokens" ? ` WHERE app <> '${SHARED_KEY_APP}'` : "";
  await sql.all(`DELETE FROM ${table}${except}`);
}

class Loading {
  readonly #sql: Sql;
  readonly #atOnce: number;
  #table = "";
  #rows: Row[] = [];
  expiredApprovals = 0;

  constructor(sql: Sql, kind: Engine["kind"]) {
    this.#sql = sql;
    this.#atOnce = kind === "sqlite" ? 1 : INSERTED_AT_ONCE;
  }

  async take(table: string, row: Row): Promise<void> {
    if (NOT_COPIED.has(table) || table === "store" || table === "feed") return;
    if (table === "tokens" && row.app === SHARED_KEY_APP) return;
    if (table === "access") return this.#mergeAccess(row);
    if (table === "challenges" && (row.state === "pending" || row.state === "approved")) {
      this.expiredApprovals++;
      return this.insert(table, { ...row, state: "expired", live: null });
    }
    return this.insert(table, row);
  }

  async insert(table: string, row: Row): Promise<void> {
    if (table !== this.#table) await this.flush();
    this.#table = table;
    this.#rows.push(row);
    const limit = table === "packs" ? LARGE_ROWS_AT_ONCE : this.#atOnce;
    if (this.#rows.length >= limit) await this.flush();
  }

  async flush(): Promise<void> {
    const rows = this.#rows.splice(0);
    const [first] = rows;
    if (!first) return;
    const columns = Object.keys(first);
    const places = rows.map((_, i) => `(${columns.map((_, j) => `$${i * columns.length + j + 1}`).join(", ")})`);
    const text = `INSERT INTO ${this.#table} (${columns.join(", ")}) VALUES ${places.join(", ")}`;
    const values = rows.flatMap((row) => columns.map((column) => row[column] as SqlValue));
    await this.#sql.all(`${text} ${MERGE[this.#table] ?? ""}`, values);
  }

  /** Access without a credential never comes back. */
  async #mergeAccess(row: Row): Promise<void> {
    await this.#sql.all(
      `UPDATE access SET
         has_credentials = CASE WHEN has_credentials = 1 OR $1 = 1 THEN 1 ELSE 0 END,
         local_access = CASE WHEN local_access = 1 AND $2 = 1 THEN 1 ELSE 0 END`,
      [row.has_credentials as number, row.local_access as number],
    );
  }
}

/** For rows that are there: the later one counts. */
const MERGE: Readonly<Record<string, string>> = {
  spent: `ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at
            WHERE spent.expires_at < excluded.expires_at`,
  leases: "ON CONFLICT (key) DO UPDATE SET tat = excluded.tat WHERE leases.tat < excluded.tat",
  ledgers: `ON CONFLICT (origin, place) DO UPDATE SET note = excluded.note, size = excluded.size,
              updated_at = excluded.updated_at WHERE ledgers.size < excluded.size`,
  recorded: "ON CONFLICT (ledger) DO NOTHING",
  halts: "ON CONFLICT (name) DO NOTHING",
};

interface Content {
  /** Revision by id. */
  readonly applications: ReadonlyMap<string, number>;
  readonly keys: ReadonlySet<string>;
  readonly revoked: ReadonlyMap<string, number>;
  readonly active: readonly string[];
}

async function contentOf(sql: Sql): Promise<Content> {
  const applications = await sql.all("SELECT id, revision FROM applications ORDER BY id");
  const keys = await sql.all("SELECT id, revoked_at, expires_at, @now AS now FROM keys ORDER BY id");
  const isActive = ({ revoked_at: revoked, expires_at: expires, now }: Row): boolean =>
    revoked === null && (expires === null || (expires as number) > (now as number));
  return {
    applications: new Map(applications.map((row) => [row.id as string, row.revision as number])),
    keys: new Set(keys.map((row) => row.id as string)),
    revoked: new Map(
      keys.filter((row) => row.revoked_at !== null).map((row) => [row.id as string, row.revoked_at as number]),
    ),
    active: keys.filter(isActive).map((row) => row.id as string),
  };
}

async function keepRevoked(
  sql: Sql,
  revoked: ReadonlyMap<string, number>,
  further: readonly string[],
): Promise<string[]> {
  const kept: string[] = [];
  for (const id of new Set([...revoked.keys(), ...further])) {
    const rows = await sql.all(
      "UPDATE keys SET revoked_at = COALESCE(CAST($2 AS BIGINT), @now) WHERE id = $1 AND revoked_at IS NULL RETURNING id",
      [id, revoked.get(id) ?? null],
    );
    if (rows.length > 0) kept.push(id);
  }
  return kept;
}

function report(before: Content, after: Content, stayRevoked: string[], expiredApprovals: number): LoadReport {
  const some = (names: Iterable<string>, isWanted: (name: string) => boolean): string[] =>
    [...names].filter(isWanted).slice(0, MAX_REPORTED);
  return {
    applicationsGone: some(before.applications.keys(), (id) => !after.applications.has(id)),
    applicationsBack: some(after.applications.keys(), (id) => !before.applications.has(id)),
    applicationsChanged: some(
      after.applications.keys(),
      (id) => before.applications.has(id) && before.applications.get(id) !== after.applications.get(id),
    ),
    keysGone: some(before.active, (id) => !after.keys.has(id)),
    keysBack: some(after.active, (id) => !before.keys.has(id)),
    keysStayRevoked: stayRevoked.slice(0, MAX_REPORTED),
    expiredApprovals,
  };
}

/**
 * Expires open approvals and removes the key of request states, so that those issued before do not count. False when it
 * was already done later than `after`, a time by the store's clock at which the store was not yet put back.
 */
export function settleRollback(engine: Engine, after: number, proof: string): Promise<boolean> {
  const isPostgres = engine.kind === "postgres";
  const changes = isPostgres
    ? "(SELECT topic, action, at FROM changes UNION ALL SELECT topic, action, at FROM unnumbered_changes) AS noted"
    : "changes";
  return engine.write(async (sql, note) => {
    // Replicas find it at the same time: one of them does it. SQLite has one writer.
    if (isPostgres) await sql.all("SELECT id FROM store FOR UPDATE");
    const done = `SELECT 1 AS one FROM ${changes}
       WHERE topic = 'store' AND action = 'restored' AND at > CAST($1 AS BIGINT) LIMIT 1`;
    if ((await sql.all(done, [Math.floor(after)])).length > 0) return false;
    await sql.all("UPDATE challenges SET state = 'expired', live = NULL WHERE state IN ('pending', 'approved')");
    await sql.all("DELETE FROM tokens WHERE app = $1", [SHARED_KEY_APP]);
    // A new epoch: what replicas keep beside the store does not belong to it any more.
    await sql.all("UPDATE store SET id = $1", [randomBytes(16).toString("hex")]);
    note({ topic: "token", action: "remove", app: SHARED_KEY_APP, name: SHARED_KEY_APP, by: "gateway" });
    note({ topic: "store", action: "restored", app: "", name: proof, by: "gateway" });
    return true;
  });
}
