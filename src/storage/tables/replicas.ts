import { randomBytes } from "node:crypto";
import type { JsonObject } from "../../mcp/index.js";
import { checkName, checkSize, type Engine, jsonColumn, type Row, StorageError } from "../sql.js";
import type {
  Leases,
  Ledgers,
  RateLimitTable,
  RegisteredLedger,
  Replica,
  ReplicaMessages,
  Replicas,
} from "../types.js";

const MAX_REPLICAS = 1_000;
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
          MAX_REPLICAS,
        ]),
      );
      return rows.map(readReplica);
    },

    async remove(id) {
      await engine.write((sql) => sql.all("DELETE FROM replicas WHERE id = $1", [id]));
    },
  };
}

function readReplica(row: Row): Replica {
  return {
    id: row.id as string,
    ledgerOrigin: row.ledger_origin as string,
    detail: JSON.parse(row.detail as string) as JsonObject,
    startedAt: row.started_at as number,
    seenAt: row.seen_at as number,
  };
}

const MAX_BYTES = 16 * 1024 * 1024;

export function replicaMessagesIn(engine: Engine): ReplicaMessages {
  return {
    async post(to, text, ttlMs) {
      checkName("the recipient of a message", to);
      checkSize("a replica message", Buffer.byteLength(text), MAX_BYTES);
      const id = randomBytes(12).toString("base64url");
      await engine.write(async (sql, note) => {
        await sql.all(
          "INSERT INTO letters (id, addressee, text, expires_at) VALUES ($1, $2, $3, @now + CAST($4 AS BIGINT))",
          [id, to, text, Math.ceil(ttlMs)],
        );
        note({ topic: "letter", action: "put", app: to, name: id, by: "gateway" });
      });
    },

    async read(id) {
      const [row] = await engine.read((sql) =>
        sql.all("SELECT text FROM letters WHERE id = $1 AND expires_at > @now", [id]),
      );
      return row?.text as string | undefined;
    },
  };
}

const MAX_LEDGERS = 10_000;
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
      return row && readLedger(row);
    },

    async list() {
      const rows = await engine.read((sql) =>
        sql.all("SELECT * FROM ledgers ORDER BY origin, place LIMIT $1", [MAX_LEDGERS]),
      );
      return rows.map(readLedger);
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

function readLedger(row: Row): RegisteredLedger {
  return {
    origin: row.origin as string,
    place: row.place as string,
    note: row.note as string,
    size: row.size as number,
    updatedAt: row.updated_at as number,
  };
}

export function leasesIn(engine: Engine): Leases {
  return {
    async lease(key, want, rate, atLeast = 1) {
      check(key, want, rate);
      const { tokens, periodMs, burst } = rate;
      if (!(atLeast >= 1 && atLeast <= Math.min(want, burst))) {
        throw new StorageError("STORAGE_INVALID", "a lease's `atLeast` is between 1 and both `want` and `burst`");
      }
      const each = periodMs / tokens;
      return engine.write(async (sql) => {
        // Also takes hold of the row: who comes next sees what is written below.
        const [row] = await sql.all(
          `INSERT INTO leases (key, tat) VALUES ($1, 0)
           ON CONFLICT (key) DO UPDATE SET key = excluded.key RETURNING tat, @now AS now`,
          [key],
        );
        const { tat, now } = row as { tat: number; now: number };
        const base = Math.max(tat, now);
        const free = Math.floor((burst * each - (base - now)) / each + 1e-9);
        const granted = Math.min(Math.floor(want), free);
        if (granted < atLeast) {
          return { granted: 0, retryAfterMs: Math.max(1, Math.ceil(base - now + atLeast * each - burst * each)) };
        }
        await sql.all("UPDATE leases SET tat = $2 WHERE key = $1", [key, base + granted * each]);
        return { granted, retryAfterMs: 0 };
      });
    },

    async charge(key, tokens, rate) {
      check(key, tokens, rate);
      await engine.write((sql) =>
        sql.all(
          `INSERT INTO leases (key, tat) VALUES ($1, @now + CAST($2 AS DOUBLE PRECISION)) ON CONFLICT (key) DO UPDATE
           SET tat = CASE WHEN leases.tat > @now THEN leases.tat ELSE @now END + CAST($2 AS DOUBLE PRECISION)`,
          [key, (tokens * rate.periodMs) / rate.tokens],
        ),
      );
    },
  };
}

function check(key: string, want: number, { tokens, periodMs, burst }: RateLimitTable): void {
  checkName("the key of a limit", key, 512);
  if (!(want >= 1 && tokens > 0 && periodMs > 0 && burst >= 1)) {
    throw new StorageError("STORAGE_INVALID", "a lease wants at least one token, of a rate above zero");
  }
}
