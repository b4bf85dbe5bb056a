import { checkName, type Engine, type Row, StorageError } from "../sql.js";
import type { HaltTable, StoredHalt } from "../types.js";

const MAX_NAME_CHARS = 1_024;
const MAX_REASON_CHARS = 2_000;
const MAX_HALTS = 1_000;

export function haltsIn(engine: Engine): HaltTable {
  return {
    async put({ name, app, reason }, by) {
      checkName("what is halted", name, MAX_NAME_CHARS);
      checkName("the name of who makes the change", by);
      if (reason !== "") checkName("the reason", reason, MAX_REASON_CHARS);
      return engine.write(async (sql, note) => {
        const [count] = await sql.all("SELECT count(*) AS n FROM halts WHERE name <> $1", [name]);
        if (((count as Row).n as number) >= MAX_HALTS) {
          throw new StorageError("STORAGE_FULL", `${MAX_HALTS} halts are in force; halt more with one, or resume some`);
        }
        const [row] = await sql.all(
          `INSERT INTO halts (name, app, reason, by_whom, at) VALUES ($1, $2, $3, $4, @now)
           ON CONFLICT (name) DO UPDATE SET reason = excluded.reason, by_whom = excluded.by_whom, at = excluded.at
           RETURNING *`,
          [name, app, reason, by],
        );
        note({ topic: "halt", action: "put", app, name, by });
        return read(row as Row);
      });
    },

    async list() {
      const rows = await engine.read((sql) => sql.all("SELECT * FROM halts ORDER BY name LIMIT $1", [MAX_HALTS]));
      return rows.map(read);
    },

    async remove(name, by) {
      checkName("the name of who makes the change", by);
      return engine.write(async (sql, note) => {
        const [gone] = await sql.all("DELETE FROM halts WHERE name = $1 RETURNING app", [name]);
        if (gone) note({ topic: "halt", action: "remove", app: gone.app as string, name, by });
        return gone !== undefined;
      });
    },
  };
}

function read(row: Row): StoredHalt {
  return {
    name: row.name as string,
    app: row.app as string,
    reason: row.reason as string,
    by: row.by_whom as string,
    at: row.at as number,
  };
}
