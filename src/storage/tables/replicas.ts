import type { JsonObject } from "../../mcp/index.js";
import type { Engine, Row } from "../sql.js";
import type { Replica, Replicas } from "../types.js";
import { jsonColumn, checkName } from "./bounds.js";

const MAX_LIST = 1_000;
const MAX_DETAIL_BYTES = 16 * 1024;

export function replicasIn(engine: Engine): Replicas {
  return {
    async beat({ id, ledgerOrigin, detail }) {
      checkName("the replica's id", id);
      checkName("the ledger's origin", ledgerOrigin, 512);
      const text = jsonColumn("a replica's detail", detail, MAX_DETAIL_BYTES);
      await engine.write((sql) =>
        sql.all(
          `INSERT INTO replicas (id, ledger_origin, detail, started_at, seen_at) VALUES ($1, $2, $3, @now, @now)
           ON CONFLICT (id) DO UPDATE SET ledger_origin = excluded.ledger_origin, detail = excluded.detail,
             seen_at = excluded.seen_at`,
          [id, ledgerOrigin, text],
        ),
      );
    },

    async list(withinMs) {
      const rows = await engine.read((sql) =>
        sql.all("SELECT * FROM replicas WHERE seen_at > @now - CAST($1 AS BIGINT) ORDER BY id LIMIT $2", [
          Math.floor(withinMs),
          MAX_LIST,
        ]),
      );
      return rows.map(read);
    },

    async remove(id) {
      await engine.write((sql) => sql.all("DELETE FROM replicas WHERE id = $1", [id]));
    },
  };
}

function read(row: Row): Replica {
  return {
    id: row.id as string,
    ledgerOrigin: row.ledger_origin as string,
    detail: JSON.parse(row.detail as string) as JsonObject,
    startedAt: row.started_at as number,
    seenAt: row.seen_at as number,
  };
}
