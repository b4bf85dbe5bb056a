import type { JsonObject } from "../../mcp/index.js";
import { checkBatch, checkName, type Engine, jsonColumn, type Row } from "../sql.js";
import type { SessionTable, StoredSession } from "../types.js";

const MAX_STATE_BYTES = 256 * 1024;
const TOUCHED_AT_ONCE = 100;

export function sessionsIn(engine: Engine): SessionTable {
  return {
    async add(session) {
      checkName("the session's id", session.id);
      const state = jsonColumn("a session", session.state, MAX_STATE_BYTES);
      const rows = await engine.write((sql) =>
        sql.all(
          `INSERT INTO sessions (id, app, principal, revision, state, owner, version, expires_at)
           VALUES ($1, $2, $3, $4, $5, $6, 1, @now + CAST($7 AS BIGINT)) RETURNING *`,
          [
            session.id,
            session.app,
            session.principal,
            session.revision,
            state,
            session.owner,
            Math.floor(session.ttlMs),
          ],
        ),
      );
      return read(rows[0] as Row);
    },

    async get(id) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT * FROM sessions WHERE id = $1 AND expires_at > @now", [id]),
      );
      return row && read(row);
    },

    async update(id, version, { owner, state, ttlMs }) {
      const text = state === undefined ? null : jsonColumn("a session", state, MAX_STATE_BYTES);
      const rows = await engine.write(async (sql, note) => {
        const done = await sql.all(
          `UPDATE sessions SET owner = coalesce(CAST($3 AS TEXT), owner), state = coalesce(CAST($4 AS TEXT), state),
             version = version + 1, expires_at = @now + CAST($5 AS BIGINT)
           WHERE id = $1 AND version = $2 AND expires_at > @now RETURNING *`,
          [id, version, owner ?? null, text, Math.floor(ttlMs)],
        );
        // The replica that had it lets go of it.
        if (done[0] && owner !== undefined) {
          note({ topic: "session", action: "put", app: done[0].app as string, name: id, by: `replica:${owner}` });
        }
        return done;
      });
      return rows[0] && read(rows[0]);
    },

    async touch(ids, ttlMs) {
      checkBatch("sessions", ids.length);
      const lock = engine.kind === "postgres" ? "ORDER BY id FOR UPDATE" : "";
      for (let i = 0; i < ids.length; i += TOUCHED_AT_ONCE) {
        const some = ids.slice(i, i + TOUCHED_AT_ONCE);
        const places = some.map((_, n) => `$${n + 2}`).join(", ");
        await engine.write((sql) =>
          sql.all(
            `UPDATE sessions SET expires_at = @now + CAST($1 AS BIGINT) WHERE id IN
               (SELECT id FROM sessions WHERE id IN (${places}) AND expires_at > @now ${lock})`,
            [Math.floor(ttlMs), ...some],
          ),
        );
      }
    },

    async remove(id) {
      return engine.write(async (sql, note) => {
        const [row] = await sql.all("DELETE FROM sessions WHERE id = $1 RETURNING app, owner", [id]);
        if (row) {
          const { app, owner } = row as { app: string; owner: string };
          note({ topic: "session", action: "remove", app, name: id, by: `replica:${owner}` });
        }
        return row !== undefined;
      });
    },
  };
}

function read(row: Row): StoredSession {
  return {
    id: row.id as string,
    app: row.app as string,
    principal: row.principal as string,
    revision: row.revision as string,
    state: JSON.parse(row.state as string) as JsonObject,
    owner: row.owner as string,
    version: row.version as number,
    expiresAt: row.expires_at as number,
  };
}
