import type { JsonObject } from "../../mcp/index.js";
import type { StoredFeed } from "../feed.js";
import { checkName, type Engine, jsonColumn, type Row, type Sql, StorageError } from "../sql.js";
import type { Challenges, StoredChallenge } from "../types.js";

const MAX_DOCUMENT_BYTES = 256 * 1024;
const MAX_PAYLOAD_BYTES = 8 * 1024 * 1024;
const MAX_LIST = 1_000;
const MAX_REDEEMED = 10_000;
const EVIDENCE_MS = 60_000;
/** Not longer than a sweep keeps them. */
const EXPIRED_WITHIN_MS = 3_600_000;
/** Two identical calls that arrive together and see the other's challenge come and go. */
const MAX_ROUNDS = 5;

const STATE = `CASE WHEN expires_at <= @now AND state IN ('pending', 'approved') THEN 'expired' ELSE state END AS state`;
const COLUMNS = `id, key, app, agent, document, created_at, expires_at, ${STATE}`;
/** So many ids are asked for in one statement. */
const IDS_AT_ONCE = 500;

export function challengesIn(engine: Engine, feed: StoredFeed): Challenges {
  /** Redeemed here and not given back, with the time by the monotonic clock. */
  const redeemed = new Map<string, number>();
  /** Those redeemed before a store was put back are expired in it. */
  let settledAt = Number.NEGATIVE_INFINITY;
  feed.addEvidence({
    async isKept(sql) {
      const [newest, at = 0] = [...redeemed].at(-1) ?? [];
      // Later it is in the feed, and may be removed with its application.
      if (newest === undefined || at < Math.max(settledAt, performance.now() - EVIDENCE_MS)) return true;
      const [row] = await sql.all("SELECT state FROM challenges WHERE id = $1", [newest]);
      return row?.state === "redeemed";
    },
    async writeAgain() {
      settledAt = performance.now();
    },
  });
  return {
    async open(challenge, bounds) {
      checkName("the challenge's id", challenge.id, 64);
      checkName("the challenge's key", challenge.key);
      const text = jsonColumn("a challenge", challenge.document, MAX_DOCUMENT_BYTES);
      const payload = jsonColumn("the payload of a challenge", challenge.payload, MAX_PAYLOAD_BYTES);
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const opened = await engine.write(async (sql, note) => {
          // Expired, it no longer stands in the way of a new one.
          await sql.all("UPDATE challenges SET live = NULL WHERE key = $1 AND live = 1 AND expires_at <= @now", [
            challenge.key,
          ]);
          const live = await liveOne(sql, challenge.key);
          if (live) return { challenge: live, isNew: false };
          const full = await fullFor(engine.kind, sql, challenge, bounds);
          if (full) return { full };
          const [made] = await sql.all(
            `INSERT INTO challenges (id, key, app, agent, state, live, document, payload, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, 1, $6, $7, @now, @now + CAST($8 AS BIGINT))
             ON CONFLICT (key) WHERE live = 1 DO NOTHING RETURNING ${COLUMNS}`,
            [
              challenge.id,
              challenge.key,
              challenge.app,
              challenge.agent,
              challenge.state,
              text,
              payload,
              Math.floor(challenge.ttlMs),
            ],
          );
          if (made) {
            note({
              topic: "challenge",
              action: "put",
              app: challenge.app,
              name: challenge.id,
              by: `app:${challenge.app}`,
            });
            return { challenge: read(made), isNew: true };
          }
          const theirs = await liveOne(sql, challenge.key);
          return theirs ? { challenge: theirs, isNew: false } : "again";
        });
        if (opened !== "again") return opened;
      }
      throw new StorageError("STORAGE_UNAVAILABLE", "identical calls keep opening and ending challenges; try again");
    },

    async move(id, from, to, merge) {
      // A store that was put back does not know it.
      if (to === "redeemed" && redeemed.has(id)) return undefined;
      // Before the write: what is given back is not evidence any more.
      redeemed.delete(id);
      const write = (): Promise<StoredChallenge | undefined> =>
        engine.write(async (sql, note) => {
          if (to === "redeemed") await feed.checkHistory(sql);
          const live = to === "redeemed" || to === "expired" ? null : 1;
          const [row] = await sql.all(
            `UPDATE challenges SET state = $3, live = $4 WHERE id = $1 AND state = $2 AND expires_at > @now
             AND (live = 1 OR NOT EXISTS
               (SELECT 1 FROM challenges AS other WHERE other.key = challenges.key AND other.live = 1))
           RETURNING ${COLUMNS}`,
            [id, from, to, live],
          );
          if (!row) return undefined;
          let moved = read(row);
          if (merge) {
            // The row is this transaction's own since the update: no other transaction writes the document meanwhile.
            moved = { ...moved, document: { ...moved.document, ...merge } };
            const text = jsonColumn("a challenge", moved.document, MAX_DOCUMENT_BYTES);
            await sql.all("UPDATE challenges SET document = $2 WHERE id = $1", [id, text]);
          }
          note({ topic: "challenge", action: "move", app: moved.app, name: id, by: decider(moved.document) });
          return moved;
        });
      const done = await feed.compared(write);
      if (done && to === "redeemed") redeemed.set(id, performance.now());
      for (const oldest of redeemed.keys()) if (redeemed.size > MAX_REDEEMED) redeemed.delete(oldest);
      return done;
    },

    async get(id) {
      const [row] = await engine.read((sql) =>
        sql.all(`SELECT ${COLUMNS}, payload FROM challenges WHERE id = $1`, [id]),
      );
      if (!row) return undefined;
      const found = read(row);
      // Rows of before the payload was stored apart have it in their document.
      const payload = row.payload === null ? found.document : (JSON.parse(row.payload as string) as JsonObject);
      return { ...found, payload };
    },

    async states(ids) {
      const states = new Map<string, string>();
      for (let at = 0; at < ids.length; at += IDS_AT_ONCE) {
        const some = ids.slice(at, at + IDS_AT_ONCE);
        const places = some.map((_, i) => `$${i + 1}`).join(", ");
        const rows = await engine.read((sql) =>
          sql.all(`SELECT id, ${STATE} FROM challenges WHERE id IN (${places})`, some),
        );
        for (const row of rows) states.set(row.id as string, row.state as string);
      }
      return states;
    },

    async list(max, { app, state } = {}) {
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT ${COLUMNS} FROM (
             SELECT id, key, app, agent, document, created_at, expires_at, state,
               CASE WHEN state = 'pending' THEN 0 ELSE 1 END AS answered,
               ROW_NUMBER() OVER (PARTITION BY app, CASE WHEN state = 'pending' THEN 0 ELSE 1 END
                 ORDER BY created_at, id) AS place
             FROM challenges
             WHERE expires_at > @now AND ($2 = '' OR app = $2) AND ($3 = '' OR state = $3)) AS listed
           ORDER BY answered, place, created_at, id LIMIT $1`,
          [Math.min(max, MAX_LIST), app ?? "", state ?? ""],
        ),
      );
      return rows.map(read);
    },

    async figures() {
      const [row] = await engine.read((sql) =>
        sql.all(
          `SELECT coalesce(sum(CASE WHEN expires_at > @now THEN 1 ELSE 0 END), 0) AS pending,
             coalesce(sum(CASE WHEN expires_at > @now THEN 0 ELSE 1 END), 0) AS expired,
             coalesce(@now - min(CASE WHEN expires_at > @now THEN created_at ELSE NULL END), 0) AS oldest
           FROM challenges WHERE state = 'pending' AND expires_at > @now - CAST($1 AS BIGINT)`,
          [EXPIRED_WITHIN_MS],
        ),
      );
      const { pending, expired, oldest } = row as Row;
      return { pending: Number(pending), oldestMs: Math.max(0, Number(oldest)), expired: Number(expired) };
    },

    onChange(listener) {
      let stopped = false;
      const watching = feed.watch({
        change: ({ topic, name }) => {
          if (topic === "challenge") listener(name);
        },
        // Which of them changed is not known: every waiting caller reads again.
        resync: () => listener(""),
      });
      // Without the feed there are no callbacks; waiting callers also poll.
      watching.catch(() => {});
      return () => {
        if (stopped) return;
        stopped = true;
        watching.then(
          (stop) => stop(),
          () => {},
        );
      };
    },
  };
}

/** Which bound is reached. Those that were denied are over: they do not count, though a retry still reads the answer. */
async function fullFor(
  kind: Engine["kind"],
  sql: Sql,
  { app, agent }: { readonly app: string; readonly agent: string },
  { perApp, perAgent }: { readonly perApp: number; readonly perAgent: number },
): Promise<"app" | "agent" | undefined> {
  // SQLite has one writer; with PostgreSQL two replicas must not count at once and then both add one.
  if (kind === "postgres") await sql.all("SELECT pg_advisory_xact_lock(hashtext($1))", [`approvals ${app}`]);
  const [row] = await sql.all(
    `SELECT count(*) AS of_app, coalesce(sum(CASE WHEN agent = $2 THEN 1 ELSE 0 END), 0) AS of_agent FROM challenges
     WHERE app = $1 AND live = 1 AND state IN ('pending', 'approved') AND expires_at > @now`,
    [app, agent],
  );
  if (Number((row as Row).of_agent) >= perAgent) return "agent";
  return Number((row as Row).of_app) >= perApp ? "app" : undefined;
}

async function liveOne(sql: Sql, key: string): Promise<StoredChallenge | undefined> {
  const [row] = await sql.all(`SELECT ${COLUMNS} FROM challenges WHERE key = $1 AND live = 1`, [key]);
  return row && read(row);
}

function decider({ decidedBy }: JsonObject): string {
  return typeof decidedBy === "string" ? decidedBy : "gateway";
}

function read(row: Row): StoredChallenge {
  return {
    id: row.id as string,
    key: row.key as string,
    app: row.app as string,
    agent: row.agent as string,
    state: row.state as string,
    document: JSON.parse(row.document as string) as JsonObject,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
}
