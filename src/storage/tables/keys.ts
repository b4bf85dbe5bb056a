// Whether callers without a credential are served as the machine's own user. Once a key or an issuer was configured,
// they never are again, even if that key is removed: see `Access`.

import type { Evidence, StoredFeed } from "../feed.js";
import {
  asPage,
  checkBatch,
  checkName,
  type Engine,
  jsonColumn,
  optionalColumn,
  pageLimit,
  type Row,
  type Sql,
  StorageError,
} from "../sql.js";
import type { Access, AccessState, ApiKey, KeyLimits, Keys, StoreChange } from "../types.js";

/** Access belongs to the store, not to one of its applications. */
const CHANGE = { topic: "access", action: "changed", app: "~gateway" } as const;
const COLUMNS = "local_access, has_credentials";

export function accessIn(engine: Engine, feed: StoredFeed): Access {
  feed.addEvidence(configuredCredentials(engine));
  return {
    get: () => engine.read(async (sql) => readAccess((await sql.all(`SELECT ${COLUMNS} FROM access`))[0])),
    setLocalAccess: (isOn, by) =>
      engine.write(async (sql, note) => {
        const statement = isOn
          ? "UPDATE access SET local_access = 1 WHERE local_access = 0 AND has_credentials = 0 RETURNING local_access"
          : "UPDATE access SET local_access = 0 WHERE local_access = 1 RETURNING local_access";
        if ((await sql.all(statement)).length > 0) note({ ...CHANGE, name: isOn ? "local on" : "local off", by });
        return readAccess((await sql.all(`SELECT ${COLUMNS} FROM access`))[0]);
      }),
    credentialConfigured: (name, by) =>
      engine.write(async (sql, note) => {
        if (await markCredentials(sql)) note({ ...CHANGE, name, by });
      }),
  };
}

/** Access without a credential does not return with a store that was put back to before the first credential. */
function configuredCredentials(engine: Engine): Evidence {
  let isConfigured = false;
  const isIn = async (sql: Sql): Promise<boolean> =>
    readAccess((await sql.all(`SELECT ${COLUMNS} FROM access`))[0]).hasCredentials;
  return {
    async begin(sql) {
      isConfigured ||= await isIn(sql);
    },
    onChange(change) {
      isConfigured ||= isCredentialChange(change);
    },
    isKept: async (sql) => !isConfigured || (await isIn(sql)),
    async writeAgain() {
      if (!isConfigured) return;
      await engine.write(async (sql, note) => {
        if (await markCredentials(sql)) note({ ...CHANGE, name: "credential", by: "gateway" });
      });
    },
  };
}

/** Whether a change of the store shows that a key or an issuer was configured. */
export function isCredentialChange({ topic, action, name }: Pick<StoreChange, "topic" | "action" | "name">): boolean {
  return topic === "key" || (topic === "access" && action === "changed" && !name.startsWith("local "));
}

/** Part of the transaction that configures a credential. Returns whether it is the first one. */
export async function markCredentials(sql: Sql): Promise<boolean> {
  const rows = await sql.all("UPDATE access SET has_credentials = 1 WHERE has_credentials = 0 RETURNING 1 AS first");
  return rows.length > 0;
}

/** A store without the row answers as one that has credentials. */
function readAccess(row: Row | undefined): AccessState {
  return { localAccess: row?.local_access === 1, hasCredentials: row?.has_credentials !== 0 };
}

const MAX_PERMISSION_BYTES = 64 * 1024;
/** Rows changed under one lock; the next ones wait for the next transaction. */
const USED_AT_ONCE = 100;
/** Every replica reports every key that was used; one of them is written in this period. */
const USED_PRECISION_MS = 30_000;

/** The newest of those that were revoked, for a store that has forgotten it. */
const MAX_REVOKED = 100_000;
const REVOKED_AT_ONCE = 500;

export function keysIn(engine: Engine, feed: StoredFeed): Keys {
  /** When each was revoked, the newest last: those that this process knows of. */
  const revoked = new Map<string, number>();
  feed.addEvidence(revocations(engine, revoked));
  /** A store that was put back may have a key in force that was revoked; it is not, also before that is written again. */
  const readKnown = (row: Row): ApiKey =>
    readKey({ ...row, revoked_at: row.revoked_at ?? revoked.get(row.id as string) ?? null });
  return {
    async add(key, by) {
      checkName("the key's id", key.id, 64);
      checkName("the key's name", key.name, 63);
      checkName("the key's agent", key.agent, 63);
      checkName("the key's prefix", key.prefix, 32);
      if (!/^[0-9a-f]{64}$/.test(key.hash))
        throw new StorageError("STORAGE_INVALID", "the hash is not a SHA-256 in hex");
      const permissions = jsonColumn("the list of permissions", key.permissions, MAX_PERMISSION_BYTES);
      const limits = jsonColumn("limits", key.limits, 1024);
      const rows = await engine.write(async (sql, note) => {
        const [app] = await sql.all("SELECT id FROM applications WHERE id = $1", [key.app]);
        if (!app) throw new StorageError("STORAGE_INVALID", `there is no application \`${key.app}\`; add it first`);
        note({ topic: "key", action: "put", app: key.app, name: key.id, by });
        await markCredentials(sql);
        return sql.all(
          `INSERT INTO keys (id, app, agent, name, hash, prefix, permissions, limits, created_at, expires_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, @now, $9) RETURNING *`,
          [
            key.id,
            key.app,
            key.agent,
            key.name,
            key.hash,
            key.prefix,
            permissions,
            limits,
            key.expiresAt === undefined ? null : Math.floor(key.expiresAt),
          ],
        );
      });
      return readKey(rows[0] as Row);
    },

    async get(id) {
      const [row] = await engine.read((sql) => sql.all("SELECT * FROM keys WHERE id = $1", [id]));
      return row && readKnown(row);
    },

    async byHash(hash) {
      const [row] = await engine.read((sql) => sql.all("SELECT * FROM keys WHERE hash = $1", [hash]));
      return row && readKnown(row);
    },

    async list({ app, activeOnly = false } = {}, options) {
      const limit = pageLimit(options);
      const active = activeOnly ? "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > @now)" : "";
      const ofApp = app === undefined ? "" : "AND app = $3";
      const rows = await engine.read((sql) =>
        sql.all(`SELECT * FROM keys WHERE id > $1 ${ofApp} ${active} ORDER BY id LIMIT $2`, [
          options?.after ?? "",
          limit + 1,
          ...(app === undefined ? [] : [app]),
        ]),
      );
      const page = asPage(rows, limit, readKnown, (row) => row.id as string);
      return activeOnly ? { ...page, items: page.items.filter(({ revokedAt }) => revokedAt === undefined) } : page;
    },

    async change(id, { permissions, limits, expiresAt }, by) {
      const texts = [
        jsonColumn("the list of permissions", permissions, MAX_PERMISSION_BYTES),
        jsonColumn("limits", limits, 1024),
      ];
      const rows = await engine.write(async (sql, note) => {
        const done = await sql.all(
          `UPDATE keys SET permissions = $2, limits = $3, expires_at = COALESCE(CAST($4 AS BIGINT), expires_at)
           WHERE id = $1 AND revoked_at IS NULL RETURNING *`,
          [id, ...texts, expiresAt === undefined ? null : Math.floor(expiresAt)],
        );
        if (done[0]) note({ topic: "key", action: "changed", app: done[0].app as string, name: id, by });
        return done;
      });
      return rows[0] && readKey(rows[0]);
    },

    async revoke(id, by) {
      return engine.write(async (sql, note) => {
        const [row] = await sql.all(
          "UPDATE keys SET revoked_at = @now WHERE id = $1 AND revoked_at IS NULL RETURNING app",
          [id],
        );
        if (row) note({ topic: "key", action: "revoke", app: row.app as string, name: id, by });
        return row !== undefined;
      });
    },

    async used(lastUsed) {
      checkBatch("keys", lastUsed.size);
      const entries = [...lastUsed];
      for (let i = 0; i < entries.length; i += USED_AT_ONCE) {
        const some = entries.slice(i, i + USED_AT_ONCE);
        const places = some.map((_, n) => `(CAST($${2 * n + 1} AS TEXT), CAST($${2 * n + 2} AS BIGINT))`).join(", ");
        // One that another replica is writing is as good as written.
        const lock = engine.kind === "postgres" ? "FOR UPDATE OF keys SKIP LOCKED" : "";
        await engine.write((sql) =>
          sql.all(
            `WITH due AS (SELECT keys.id AS id, given.column2 AS at FROM keys JOIN (VALUES ${places}) AS given
               ON keys.id = given.column1
               WHERE keys.last_used_at IS NULL OR keys.last_used_at < given.column2 - ${USED_PRECISION_MS} ${lock})
             UPDATE keys SET last_used_at = due.at FROM due WHERE keys.id = due.id`,
            some.flatMap(([id, at]) => [id, Math.floor(at)]),
          ),
        );
      }
    },
  };
}

/** A key that was revoked is revoked again in a store that was put back to before that. */
function revocations(engine: Engine, revoked: Map<string, number>): Evidence {
  const remember = (id: string, at: number): void => {
    revoked.delete(id);
    revoked.set(id, at);
    for (const oldest of revoked.keys()) {
      if (revoked.size <= MAX_REVOKED) return;
      revoked.delete(oldest);
    }
  };
  return {
    async begin(sql) {
      const rows = await sql.all(
        `SELECT id, revoked_at FROM (SELECT id, revoked_at FROM keys WHERE revoked_at IS NOT NULL
           ORDER BY revoked_at DESC LIMIT ${MAX_REVOKED}) AS newest ORDER BY revoked_at`,
      );
      for (const row of rows) remember(row.id as string, row.revoked_at as number);
    },
    onChange({ topic, action, name, at }) {
      if (topic === "key" && action === "revoke") remember(name, at);
    },
    async isKept(sql) {
      const newest = [...revoked.keys()].slice(-REVOKED_AT_ONCE);
      return newest.length === 0 || (await sql.all(inForce(newest), newest)).length === 0;
    },
    async writeAgain() {
      const all = [...revoked.keys()];
      for (let at = 0; at < all.length; at += REVOKED_AT_ONCE) {
        const some = all.slice(at, at + REVOKED_AT_ONCE);
        await engine.write(async (sql, note) => {
          for (const { id } of await sql.all(inForce(some), some)) {
            const [row] = await sql.all("UPDATE keys SET revoked_at = $2 WHERE id = $1 RETURNING app", [
              id as string,
              revoked.get(id as string) as number,
            ]);
            note({ topic: "key", action: "revoke", app: row?.app as string, name: id as string, by: "gateway" });
          }
        });
      }
    },
  };
}

function inForce(ids: readonly string[]): string {
  return `SELECT id FROM keys WHERE revoked_at IS NULL AND id IN (${ids.map((_, i) => `$${i + 1}`).join(", ")})`;
}

function readKey(row: Row): ApiKey {
  return {
    id: row.id as string,
    app: row.app as string,
    agent: row.agent as string,
    name: row.name as string,
    hash: row.hash as string,
    prefix: row.prefix as string,
    permissions: JSON.parse(row.permissions as string) as string[],
    limits: JSON.parse(row.limits as string) as KeyLimits,
    createdAt: row.created_at as number,
    ...optionalColumn("expiresAt", row.expires_at as number | null),
    ...optionalColumn("revokedAt", row.revoked_at as number | null),
    ...optionalColumn("lastUsedAt", row.last_used_at as number | null),
  };
}
