import { type ApplicationDocument, checkApplication } from "../application.js";
import { asPage, checkName, type Engine, pageLimit, type Row } from "../sql.js";
import type { Application, ApplicationTable } from "../types.js";

/** Keys and secrets go by themselves, with the row that they refer to. */
const BELONGINGS = ["pins", "tokens", "challenges", "sessions", "runtime_values"] as const;

export function applicationsIn(engine: Engine): ApplicationTable {
  return {
    async get(id) {
      const [row] = await engine.read((sql) => sql.all("SELECT * FROM applications WHERE id = $1", [id]));
      return row && read(row);
    },

    async list(page) {
      const limit = pageLimit(page);
      const rows = await engine.read((sql) =>
        sql.all("SELECT * FROM applications WHERE id > $1 ORDER BY id LIMIT $2", [page?.after ?? "", limit + 1]),
      );
      return asPage(rows, limit, read, (row) => row.id as string);
    },

    async put(id, document, by, revision) {
      const text = JSON.stringify(checkApplication(id, document));
      checkName("the name of who makes the change", by);
      const rows = await engine.write(async (sql, note) => {
        const done =
          revision === undefined
            ? await sql.all(
                `INSERT INTO applications (id, document, revision, created_at, updated_at) VALUES ($1, $2, 1, @now, @now)
                 ON CONFLICT (id) DO UPDATE SET document = excluded.document,
                   revision = applications.revision + 1, updated_at = excluded.updated_at
                 RETURNING *`,
                [id, text],
              )
            : revision === 0
              ? await sql.all(
                  `INSERT INTO applications (id, document, revision, created_at, updated_at)
                   VALUES ($1, $2, 1, @now, @now) ON CONFLICT (id) DO NOTHING RETURNING *`,
                  [id, text],
                )
              : await sql.all(
                  `UPDATE applications SET document = $2, revision = revision + 1, updated_at = @now
                   WHERE id = $1 AND revision = $3 RETURNING *`,
                  [id, text, revision],
                );
        if (done.length > 0) note({ topic: "application", action: "put", app: id, name: id, by });
        return done;
      });
      return rows[0] && read(rows[0]);
    },

    async remove(id, by) {
      checkName("the name of who makes the change", by);
      return engine.write(async (sql, note) => {
        const gone = await sql.all("DELETE FROM applications WHERE id = $1 RETURNING id", [id]);
        if (gone.length === 0) return false;
        for (const table of BELONGINGS) await sql.all(`DELETE FROM ${table} WHERE app = $1`, [id]);
        note({ topic: "application", action: "remove", app: id, name: id, by });
        return true;
      });
    },
  };
}

function read(row: Row): Application {
  return {
    id: row.id as string,
    document: JSON.parse(row.document as string) as ApplicationDocument,
    revision: row.revision as number,
    createdAt: row.created_at as number,
    updatedAt: row.updated_at as number,
  };
}
