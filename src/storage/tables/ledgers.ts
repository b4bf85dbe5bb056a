import type { Engine, Row } from "../sql.js";
import type { Ledgers, RegisteredLedger } from "../types.js";
import { checkName, checkSize } from "./bounds.js";

const MAX_LIST = 10_000;
const MAX_NOTE = 64 * 1024;

export function ledgersIn(engine: Engine): Ledgers {
  return {
    async put({ origin, place, note, size }) {
      checkName("the ledger's origin", origin, 512);
      checkName("the ledger's place", place, 4_096);
      checkSize("the ledger's checkpoint", Buffer.byteLength(note), MAX_NOTE);
      // A checkpoint that is late must not replace a newer one.
      await engine.write((sql) =>
        sql.all(
          `INSERT INTO ledgers (origin, place, note, size, updated_at) VALUES ($1, $2, $3, $4, @now)
           ON CONFLICT (origin, place) DO UPDATE SET note = excluded.note, size = excluded.size,
             updated_at = excluded.updated_at WHERE ledgers.size <= excluded.size`,
          [origin, place, note, size],
        ),
      );
    },

    async get(origin, place) {
      const text = "SELECT * FROM ledgers WHERE origin = $1 AND place = $2";
      const [row] = await engine.read((sql) => sql.all(text, [origin, place]));
      return row && read(row);
    },

    async list() {
      const rows = await engine.read((sql) =>
        sql.all("SELECT * FROM ledgers ORDER BY origin, place LIMIT $1", [MAX_LIST]),
      );
      return rows.map(read);
    },

    remove(origin, by, place) {
      return engine.write(async (sql, note) => {
        const only = place === undefined ? "" : " AND place = $2";
        const rows = await sql.all(
          `DELETE FROM ledgers WHERE origin = $1${only} RETURNING origin`,
          place === undefined ? [origin] : [origin, place],
        );
        if (rows.length > 0) note({ topic: "ledger", action: "remove", app: "", name: origin, by });
        return rows.length > 0;
      });
    },
  };
}

function read(row: Row): RegisteredLedger {
  return {
    origin: row.origin as string,
    place: row.place as string,
    note: row.note as string,
    size: row.size as number,
    updatedAt: row.updated_at as number,
  };
}
