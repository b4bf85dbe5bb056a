// The tables, version by version. A migration that was released is never edited; the next one is added.

import { KEPT_CHANGES, PRUNE_EVERY, type Sql, StorageError } from "./sql.js";

interface Dialect {
  /** Text that is compared byte by byte, so that ranges and pages mean the same everywhere. */
  readonly name: string;
  readonly integer: string;
  readonly bytes: string;
  /** An expression: a unique name. */
  readonly random: string;
  /** An expression: 1 where a new store serves the machine's own user without a credential. */
  readonly localAccess: string;
  /** What only this one needs. */
  readonly own: readonly string[];
  /** How changes get their numbers, where writers do not take turns anyway. */
  readonly numbering: readonly string[];
  /** The same, without a row that other clients could lock. */
  readonly numberingWithoutRow: readonly string[];
}

/** Held as an advisory lock for one statement while changes are numbered. */
const NUMBERING_LOCK = 7_042_161;

export const SQLITE: Dialect = {
  name: "TEXT",
  integer: "INTEGER",
  bytes: "BLOB",
  random: "lower(hex(randomblob(16)))",
  localAccess: "1",
  own: [],
  numbering: [],
  numberingWithoutRow: [],
};
export const POSTGRES: Dialect = {
  name: 'TEXT COLLATE "C"',
  integer: "BIGINT",
  bytes: "BYTEA",
  random: "replace(CAST(gen_random_uuid() AS TEXT), '-', '')",
  // Shared by machines: the operator has to ask for it.
  localAccess: "0",
  own: [
    // One row for each write, so that a commit whose answer was lost can be found again.
    'CREATE TABLE commits (id TEXT COLLATE "C" PRIMARY KEY, at BIGINT NOT NULL)',
    "CREATE INDEX commits_at ON commits (at)",
    // Every change notifies the listeners.
    `CREATE FUNCTION portcullis_tell() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM pg_notify('portcullis_changes', ''); RETURN NULL; END $$`,
    "CREATE TRIGGER portcullis_tell AFTER INSERT ON changes FOR EACH STATEMENT EXECUTE FUNCTION portcullis_tell()",
  ],
  numbering: [
    // A write leaves its changes here without a number and without a lock. They get their numbers once they are
    // committed, by the next reader: in the order of commits, without gaps, and a transaction that stalls delays
    // only its own.
    `CREATE TABLE unnumbered_changes (
       id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic TEXT COLLATE "C" NOT NULL,
       action TEXT COLLATE "C" NOT NULL, app TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
       by_whom TEXT COLLATE "C" NOT NULL, at BIGINT NOT NULL, origin TEXT COLLATE "C" NOT NULL)`,
    // One statement, committed by itself: no client can hold its lock open.
    `CREATE FUNCTION portcullis_number_changes() RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
     DECLARE newest BIGINT; numbered BIGINT;
     BEGIN
       IF NOT EXISTS (SELECT 1 FROM unnumbered_changes) THEN
         RETURN (SELECT seq FROM feed);
       END IF;
       SELECT seq INTO newest FROM feed FOR UPDATE;
       WITH moved AS (
         DELETE FROM unnumbered_changes WHERE id IN
           (SELECT id FROM unnumbered_changes ORDER BY id LIMIT ${KEPT_CHANGES}) RETURNING *
       ), inserted AS (
         INSERT INTO changes (seq, topic, action, app, name, by_whom, at, origin)
         SELECT newest + row_number() OVER (ORDER BY id), topic, action, app, name, by_whom, at, origin FROM moved
         RETURNING 1
       ) SELECT count(*) INTO numbered FROM inserted;
       UPDATE feed SET seq = newest + numbered WHERE numbered > 0;
       IF newest / ${PRUNE_EVERY} <> (newest + numbered) / ${PRUNE_EVERY} THEN
         DELETE FROM changes WHERE seq <= newest + numbered - ${KEPT_CHANGES};
       END IF;
       RETURN newest + numbered;
     END $$`,
  ],
  numberingWithoutRow: [
    // INVARIANT: changes is never empty after the first one: the newest of them has the latest number. No row is locked
    // that another client could lock too; while the advisory lock is held by a client that stalls, changes wait for
    // their numbers and nothing else waits.
    `CREATE OR REPLACE FUNCTION portcullis_number_changes() RETURNS BIGINT LANGUAGE plpgsql VOLATILE
     SET lock_timeout = '200ms' AS $$
     DECLARE newest BIGINT; numbered BIGINT;
     BEGIN
       IF EXISTS (SELECT 1 FROM unnumbered_changes) THEN
         BEGIN
           PERFORM pg_advisory_xact_lock(${NUMBERING_LOCK});
         EXCEPTION WHEN lock_not_available THEN
           RETURN (SELECT greatest(max(seq), (SELECT seq FROM feed)) FROM changes);
         END;
       END IF;
       SELECT greatest(max(seq), (SELECT seq FROM feed)) INTO newest FROM changes;
       IF NOT EXISTS (SELECT 1 FROM unnumbered_changes) THEN
         RETURN newest;
       END IF;
       WITH moved AS (
         DELETE FROM unnumbered_changes WHERE id IN
           (SELECT id FROM unnumbered_changes ORDER BY id LIMIT ${KEPT_CHANGES} FOR UPDATE SKIP LOCKED) RETURNING *
       ), inserted AS (
         INSERT INTO changes (seq, topic, action, app, name, by_whom, at, origin)
         SELECT newest + row_number() OVER (ORDER BY id), topic, action, app, name, by_whom, at, origin FROM moved
         RETURNING 1
       ) SELECT count(*) INTO numbered FROM inserted;
       IF newest / ${PRUNE_EVERY} <> (newest + numbered) / ${PRUNE_EVERY} THEN
         DELETE FROM changes WHERE seq IN
           (SELECT seq FROM changes WHERE seq <= newest + numbered - ${KEPT_CHANGES} FOR UPDATE SKIP LOCKED);
       END IF;
       RETURN newest + numbered;
     END $$`,
  ],
};

interface Migration {
  readonly up: (types: Dialect) => readonly string[];
  /** Statements that lead back to the level before; undefined for those that were released before there was a way back. */
  readonly down: ((types: Dialect) => readonly string[]) | undefined;
}

/** A new migration brings its way back: `portcullis store downgrade` takes it. */
const MIGRATIONS: readonly Migration[] = [
  ...[first, second, third, fourth, fifth, sixth, seventh].map((up) => ({ up, down: undefined })),
  { up: eighth, down: () => ["DROP TABLE ledgers"] },
  { up: ninth, down: numberByRow },
  { up: tenth, down: () => ["DROP TABLE halts"] },
];

/** What the store has after all migrations. */
export const LEVEL = MIGRATIONS.length;

/** The tables that a store of this level has. */
export function tablesAt(level: number, types: Dialect): string[] {
  const statements = MIGRATIONS.slice(0, level).flatMap(({ up }) => up(types));
  return statements.flatMap((text) => /^\s*CREATE TABLE (\w+)/.exec(text)?.[1] ?? []);
}

function first({ name, integer, bytes, own }: Dialect): readonly string[] {
  return [
    `CREATE TABLE feed (only_one ${integer} PRIMARY KEY CHECK (only_one = 1), seq ${integer} NOT NULL)`,
    "INSERT INTO feed (only_one, seq) VALUES (1, 0)",
    `CREATE TABLE changes (
       seq ${integer} PRIMARY KEY, topic ${name} NOT NULL, action ${name} NOT NULL, app ${name} NOT NULL,
       name ${name} NOT NULL, by_whom ${name} NOT NULL, at ${integer} NOT NULL, origin ${name} NOT NULL)`,
    `CREATE TABLE applications (
       id ${name} PRIMARY KEY, document TEXT NOT NULL, revision ${integer} NOT NULL,
       created_at ${integer} NOT NULL, updated_at ${integer} NOT NULL)`,
    `CREATE TABLE keys (
       id ${name} PRIMARY KEY, app ${name} NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
       agent ${name} NOT NULL, name ${name} NOT NULL, hash ${name} NOT NULL UNIQUE, prefix ${name} NOT NULL,
       permissions TEXT NOT NULL, limits TEXT NOT NULL, created_at ${integer} NOT NULL, expires_at ${integer},
       revoked_at ${integer}, last_used_at ${integer})`,
    "CREATE INDEX keys_app ON keys (app, id)",
    `CREATE TABLE secrets (
       app ${name} NOT NULL REFERENCES applications (id) ON DELETE CASCADE, name ${name} NOT NULL,
       sealed ${bytes} NOT NULL, updated_at ${integer} NOT NULL, PRIMARY KEY (app, name))`,
    `CREATE TABLE pins (
       app ${name} NOT NULL, server ${name} NOT NULL, kind ${name} NOT NULL, name ${name} NOT NULL,
       hash ${name} NOT NULL, definition TEXT NOT NULL, accepted_hash ${name}, accepted_definition TEXT,
       by_whom ${name} NOT NULL, at ${integer} NOT NULL, PRIMARY KEY (app, server, kind, name))`,
    `CREATE TABLE tokens (
       app ${name} NOT NULL, server ${name} NOT NULL, subject ${name} NOT NULL, sealed ${bytes} NOT NULL,
       version ${integer} NOT NULL, updated_at ${integer} NOT NULL, PRIMARY KEY (app, server, subject))`,
    `CREATE TABLE challenges (
       id ${name} PRIMARY KEY, key ${name} NOT NULL, app ${name} NOT NULL, state ${name} NOT NULL,
       live ${integer}, document TEXT NOT NULL, created_at ${integer} NOT NULL, expires_at ${integer} NOT NULL)`,
    "CREATE UNIQUE INDEX challenges_live ON challenges (key) WHERE live = 1",
    "CREATE INDEX challenges_expiry ON challenges (expires_at)",
    `CREATE TABLE sessions (
       id ${name} PRIMARY KEY, app ${name} NOT NULL, principal ${name} NOT NULL, revision ${name} NOT NULL,
       state TEXT NOT NULL, owner ${name} NOT NULL, version ${integer} NOT NULL, expires_at ${integer} NOT NULL)`,
    "CREATE INDEX sessions_expiry ON sessions (expires_at)",
    `CREATE TABLE runtime_values (
       app ${name} NOT NULL, key ${name} NOT NULL, value TEXT NOT NULL, version ${integer} NOT NULL,
       expires_at ${integer}, PRIMARY KEY (app, key))`,
    "CREATE INDEX runtime_values_expiry ON runtime_values (expires_at)",
    `CREATE TABLE leases (key ${name} PRIMARY KEY, tat DOUBLE PRECISION NOT NULL)`,
    "CREATE INDEX leases_tat ON leases (tat)",
    `CREATE TABLE replicas (
       id ${name} PRIMARY KEY, ledger_origin ${name} NOT NULL, detail TEXT NOT NULL,
       started_at ${integer} NOT NULL, seen_at ${integer} NOT NULL)`,
    ...own,
  ];
}

function second({ name, integer }: Dialect): readonly string[] {
  return [
    `CREATE TABLE spent (key ${name} PRIMARY KEY, expires_at ${integer} NOT NULL)`,
    "CREATE INDEX spent_expiry ON spent (expires_at)",
    `CREATE TABLE letters (
       id ${name} PRIMARY KEY, addressee ${name} NOT NULL, text TEXT NOT NULL, expires_at ${integer} NOT NULL)`,
    "CREATE INDEX letters_expiry ON letters (expires_at)",
  ];
}

function third({ name, integer, bytes, random }: Dialect): readonly string[] {
  return [
    // Which store this is: what a replica has in its directory may come from another one.
    `CREATE TABLE store (only_one ${integer} PRIMARY KEY CHECK (only_one = 1), id ${name} NOT NULL)`,
    `INSERT INTO store (only_one, id) SELECT 1, ${random}`,
    `CREATE TABLE repositories (
       app ${name} PRIMARY KEY REFERENCES applications (id) ON DELETE CASCADE, id ${name} NOT NULL,
       head ${name} NOT NULL, seq ${integer} NOT NULL, bytes ${integer} NOT NULL, claimed_by ${name},
       claimed_until ${integer})`,
    `CREATE TABLE packs (
       app ${name} NOT NULL REFERENCES repositories (app) ON DELETE CASCADE, seq ${integer} NOT NULL,
       part ${integer} NOT NULL, name ${name} NOT NULL, parent ${name}, head ${name} NOT NULL,
       bytes ${integer} NOT NULL, data ${bytes} NOT NULL, PRIMARY KEY (app, seq, part))`,
  ];
}

function fourth({ name }: Dialect): readonly string[] {
  return [
    // What the approver reads in full stands apart from what lists read. Rows of before have it in their document.
    `ALTER TABLE challenges ADD COLUMN agent ${name} NOT NULL DEFAULT ''`,
    "ALTER TABLE challenges ADD COLUMN payload TEXT",
    "CREATE INDEX challenges_open ON challenges (app, agent) WHERE live = 1",
  ];
}

function fifth({ integer, localAccess }: Dialect): readonly string[] {
  // A store that is older than this table and whose feed is no longer complete may have had keys that were removed with
  // their application: it counts as one that had.
  const hadKeys = `EXISTS (SELECT 1 FROM keys) OR EXISTS (SELECT 1 FROM changes WHERE topic = 'key')
       OR (SELECT COUNT(*) FROM changes) <> (SELECT seq FROM feed)`;
  return [
    `CREATE TABLE access (
       only_one ${integer} PRIMARY KEY CHECK (only_one = 1), local_access ${integer} NOT NULL,
       has_credentials ${integer} NOT NULL)`,
    `INSERT INTO access (only_one, local_access, has_credentials)
       SELECT 1, ${localAccess}, CASE WHEN ${hadKeys} THEN 1 ELSE 0 END`,
  ];
}

function sixth({ numbering }: Dialect): readonly string[] {
  return numbering;
}

function seventh({ name, integer }: Dialect): readonly string[] {
  return [
    // How far each ledger has recorded the feed. What was changed before this table existed was recorded by the gateways
    // that ran then: a ledger without a row of its own begins where the furthest one is.
    `CREATE TABLE recorded (ledger ${name} PRIMARY KEY, seq ${integer} NOT NULL, at ${integer} NOT NULL)`,
    "INSERT INTO recorded (ledger, seq, at) SELECT '', seq, 0 FROM feed",
  ];
}

function eighth({ name, integer }: Dialect): readonly string[] {
  return [
    // Two data directories on one store may use the same origin: each is a ledger of its own.
    `CREATE TABLE ledgers (
       origin ${name} NOT NULL, place ${name} NOT NULL, note TEXT NOT NULL, size ${integer} NOT NULL,
       updated_at ${integer} NOT NULL, PRIMARY KEY (origin, place))`,
  ];
}

function ninth({ numberingWithoutRow }: Dialect): readonly string[] {
  return numberingWithoutRow;
}

function tenth({ name, integer }: Dialect): readonly string[] {
  return [
    `CREATE TABLE halts (
       name ${name} PRIMARY KEY, app ${name} NOT NULL, reason TEXT NOT NULL, by_whom ${name} NOT NULL,
       at ${integer} NOT NULL)`,
  ];
}

/** The function of the sixth migration, which counts in the row of `feed`. */
function numberByRow({ numbering }: Dialect): readonly string[] {
  const before = numbering.filter((text) => text.startsWith("CREATE FUNCTION"));
  return [
    ...(before.length > 0 ? ["UPDATE feed SET seq = greatest(seq, (SELECT max(seq) FROM changes))"] : []),
    ...before.flatMap((text) => ["DROP FUNCTION portcullis_number_changes()", text]),
  ];
}

/** Called inside the transaction, before the first statement that changes a store of an older level. */
export type BeforeMigration = (sql: Sql, from: number, to: number) => Promise<void>;

/** The tables as this program needs them. Runs inside a transaction that no other process shares. */
export async function migrate(
  sql: Sql,
  types: Dialect,
  before: BeforeMigration = async () => {},
  level: number = LEVEL,
): Promise<void> {
  await sql.all(`CREATE TABLE IF NOT EXISTS portcullis_version (version ${types.integer} NOT NULL)`);
  const [row] = await sql.all("SELECT version FROM portcullis_version");
  const version = (row?.version ?? 0) as number;
  if (version > level) {
    throw new StorageError(
      "STORAGE_VERSION",
      `the store has level ${version}, this program knows ${level}; start the newer program, or run \`portcullis store downgrade\` with it first`,
    );
  }
  if (version === level) return;
  if (version > 0) await before(sql, version, level);
  for (const { up } of MIGRATIONS.slice(version, level)) {
    for (const statement of up(types)) await sql.all(statement);
  }
  if (row === undefined) await sql.all("INSERT INTO portcullis_version (version) VALUES ($1)", [level]);
  else await sql.all("UPDATE portcullis_version SET version = $1", [level]);
}

/** Takes the newest migration back. Returns the level that the store has then. */
export async function migrateBack(sql: Sql, types: Dialect): Promise<number> {
  const { down } = MIGRATIONS.at(-1) as Migration;
  if (down === undefined) {
    throw new StorageError(
      "STORAGE_VERSION",
      `level ${LEVEL} of the store has no way back; restore a backup from before`,
    );
  }
  for (const statement of down(types)) await sql.all(statement);
  await sql.all("UPDATE portcullis_version SET version = $1", [LEVEL - 1]);
  return LEVEL - 1;
}
