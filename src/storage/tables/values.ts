import type { JsonValue } from "../../mcp/index.js";
import {
  asPage,
  checkName,
  type Engine,
  jsonColumn,
  optionalColumn,
  pageLimit,
  type Row,
  StorageError,
} from "../sql.js";
import type { StoredValue, Values } from "../types.js";

const MAX_VALUE_BYTES = 1024 * 1024;
const MAX_VALUES = 10_000;
/** After every text that begins with a prefix. */
const LAST_CHARACTER = "\u{10FFFF}";

const ALIVE = "(expires_at IS NULL OR expires_at > @now)";

export function valuesTable(engine: Engine, maxValues: number = MAX_VALUES): Values {
  return {
    async get(app, key) {
      const [row] = await engine.read((sql) =>
        sql.all(`SELECT * FROM runtime_values WHERE app = $1 AND key = $2 AND ${ALIVE}`, [app, key]),
      );
      return row && read(row);
    },

    async set(app, key, value, { ttlMs, version } = {}) {
      checkName("the application's name", app);
      checkName("the key", key, 512);
      const text = jsonColumn("a value", value, MAX_VALUE_BYTES);
      const ttl = ttlMs === undefined ? null : Math.floor(ttlMs);
      return engine.write(async (sql) => {
        // What has expired is not there: it has no version, and does not count.
        await sql.all(`DELETE FROM runtime_values WHERE app = $1 AND key = $2 AND NOT ${ALIVE}`, [app, key]);
        const [changed] =
          version === 0
            ? []
            : await sql.all(
                `UPDATE runtime_values SET value = $3, version = version + 1, expires_at = @now + CAST($4 AS BIGINT)
                 WHERE app = $1 AND key = $2 AND (CAST($5 AS BIGINT) IS NULL OR version = $5) RETURNING *`,
                [app, key, text, ttl, version ?? null],
              );
        if (changed) return read(changed);
        if (version !== undefined && version !== 0) return undefined;
        const [count] = await sql.all(
          "SELECT count(*) AS n FROM (SELECT 1 FROM runtime_values WHERE app = $1 LIMIT $2) AS counted",
          [app, maxValues],
        );
        if (((count as Row).n as number) >= maxValues) {
          throw new StorageError("STORAGE_FULL", `application \`${app}\` has ${maxValues} values; delete some first`);
        }
        const conflict =
          version === 0
            ? "DO NOTHING"
            : `DO UPDATE SET value = excluded.value, version = runtime_values.version + 1,
                 expires_at = excluded.expires_at`;
        const [made] = await sql.all(
          `INSERT INTO runtime_values (app, key, value, version, expires_at)
           VALUES ($1, $2, $3, 1, @now + CAST($4 AS BIGINT)) ON CONFLICT (app, key) ${conflict} RETURNING *`,
          [app, key, text, ttl],
        );
        return made && read(made);
      });
    },

    async remove(app, key, version) {
      return engine.write(async (sql) => {
        const gone = await sql.all(
          `DELETE FROM runtime_values WHERE app = $1 AND key = $2 AND (CAST($3 AS BIGINT) IS NULL OR version = $3)
           RETURNING ${ALIVE} AS alive`,
          [app, key, version ?? null],
        );
        return Boolean(gone[0]?.alive);
      });
    },

    async list(app, prefix = "", page) {
      const limit = pageLimit(page);
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT * FROM runtime_values WHERE app = $1 AND key >= $2 AND key < $3 AND key > $4 AND ${ALIVE}
           ORDER BY key LIMIT $5`,
          [app, prefix, `${prefix}${LAST_CHARACTER}`, page?.after ?? "", limit + 1],
        ),
      );
      return asPage(rows, limit, read, (row) => row.key as string);
    },
  };
}

function read(row: Row): StoredValue {
  return {
    key: row.key as string,
    value: JSON.parse(row.value as string) as JsonValue,
    version: row.version as number,
    ...optionalColumn("expiresAt", row.expires_at as number | null),
  };
}
