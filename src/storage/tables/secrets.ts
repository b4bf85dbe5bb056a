import { StorageError } from "../errors.js";
import type { Engine, Row } from "../sql.js";
import type { Secrets } from "../types.js";
import { asPage, checkName, checkSize, pageLimit } from "./bounds.js";

const MAX_SEALED_BYTES = 128 * 1024;

export function secretsIn(engine: Engine): Secrets {
  return {
    async put(app, name, sealed, by) {
      checkName("the secret's name", name, 128);
      checkSize("a sealed secret", sealed.byteLength, MAX_SEALED_BYTES);
      return engine.write(async (sql, note) => {
        const [known] = await sql.all("SELECT id FROM applications WHERE id = $1", [app]);
        if (!known) throw new StorageError("STORAGE_INVALID", `there is no application \`${app}\`; add it first`);
        await sql.all(
          `INSERT INTO secrets (app, name, sealed, updated_at) VALUES ($1, $2, $3, @now)
           ON CONFLICT (app, name) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at`,
          [app, name, sealed],
        );
        note({ topic: "secret", action: "put", app, name, by });
      });
    },

    async get(app, name) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT * FROM secrets WHERE app = $1 AND name = $2", [app, name]),
      );
      return row && { ...read(row), sealed: row.sealed as Uint8Array };
    },

    async list(app, page) {
      const limit = pageLimit(page);
      const rows = await engine.read((sql) =>
        sql.all("SELECT app, name, updated_at FROM secrets WHERE app = $1 AND name > $2 ORDER BY name LIMIT $3", [
          app,
          page?.after ?? "",
          limit + 1,
        ]),
      );
      return asPage(rows, limit, read, (row) => row.name as string);
    },

    async remove(app, name, by) {
      return engine.write(async (sql, note) => {
        const gone = await sql.all("DELETE FROM secrets WHERE app = $1 AND name = $2 RETURNING name", [app, name]);
        if (gone.length > 0) note({ topic: "secret", action: "remove", app, name, by });
        return gone.length > 0;
      });
    },
  };
}

function read(row: Row): { app: string; name: string; updatedAt: number } {
  return { app: row.app as string, name: row.name as string, updatedAt: row.updated_at as number };
}
