import { StorageError } from "../errors.js";
import type { Engine, Row } from "../sql.js";
import type { ApiKey, KeyLimits, Keys } from "../types.js";
import { markCredentials } from "./access.js";
import { jsonColumn, asPage, checkBatch, checkName, optionalColumn, pageLimit } from "./bounds.js";

const MAX_PERMISSION_BYTES = 64 * 1024;
/** Rows changed under one lock; the next ones wait for the next transaction. */
const USED_AT_ONCE = 100;
/** Every replica tells of every key it was shown; one of them writes it down in so long. */
const USED_PRECISION_MS = 30_000;

export function keysIn(engine: Engine): Keys {
  return {
    async add(key, by) {
      checkName("the key's id", key.id, 64);
      checkName("the key's name", key.name, 63);
      checkName("the key's agent", key.agent, 63);
      checkName("the key's prefix", key.prefix, 32);
      if (!/^[0-9a-f]{64}$/.test(key.hash)) throw new StorageError("STORAGE_INVALID", "the hash is no SHA-256 in hex");
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
      return read(rows[0] as Row);
    },

    async get(id) {
      const [row] = await engine.read((sql) => sql.all("SELECT * FROM keys WHERE id = $1", [id]));
      return row && read(row);
    },

    async byHash(hash) {
      const [row] = await engine.read((sql) => sql.all("SELECT * FROM keys WHERE hash = $1", [hash]));
      return row && read(row);
    },

    async list({ app, activeOnly = false } = {}, page) {
      const limit = pageLimit(page);
      const active = activeOnly ? "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > @now)" : "";
      const ofApp = app === undefined ? "" : "AND app = $3";
      const rows = await engine.read((sql) =>
        sql.all(`SELECT * FROM keys WHERE id > $1 ${ofApp} ${active} ORDER BY id LIMIT $2`, [
          page?.after ?? "",
          limit + 1,
          ...(app === undefined ? [] : [app]),
        ]),
      );
      return asPage(rows, limit, read, (row) => row.id as string);
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
      return rows[0] && read(rows[0]);
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

function read(row: Row): ApiKey {
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
