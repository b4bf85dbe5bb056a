import type { JsonObject } from "../../protocol/index.js";
import { StorageError } from "../errors.js";
import type { Engine, Row, Sql } from "../sql.js";
import type { Challenges, Feed, StoredChallenge } from "../types.js";
import { asJson, checkName } from "./bounds.js";

const MAX_DOCUMENT_BYTES = 8 * 1024 * 1024;
const MAX_LIST = 1_000;
/** Two identical calls that arrive together and see the other's challenge come and go. */
const MAX_ROUNDS = 5;

const COLUMNS = `id, key, app, document, created_at, expires_at,
  CASE WHEN expires_at <= @now AND state IN ('pending', 'approved') THEN 'expired' ELSE state END AS state`;

export function challengesIn(engine: Engine, feed: Feed): Challenges {
  return {
    async open(challenge, maxOpen) {
      checkName("the challenge's id", challenge.id, 64);
      checkName("the challenge's key", challenge.key);
      const text = asJson("a challenge", challenge.document, MAX_DOCUMENT_BYTES);
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const opened = await engine.write(async (sql, note) => {
          // Expired, it no longer stands in the way of a new one.
          await sql.all("UPDATE challenges SET live = NULL WHERE key = $1 AND live = 1 AND expires_at <= @now", [
            challenge.key,
          ]);
          const live = await liveOne(sql, challenge.key);
          if (live) return { challenge: live, isNew: false };
          const [open] = await sql.all(
            "SELECT count(*) AS n FROM (SELECT 1 FROM challenges WHERE live = 1 AND expires_at > @now LIMIT $1) AS counted",
            [maxOpen],
          );
          if (((open as Row).n as number) >= maxOpen) return "full";
          const [made] = await sql.all(
            `INSERT INTO challenges (id, key, app, state, live, document, created_at, expires_at)
             VALUES ($1, $2, $3, $4, 1, $5, @now, @now + CAST($6 AS BIGINT))
             ON CONFLICT (key) WHERE live = 1 DO NOTHING RETURNING ${COLUMNS}`,
            [challenge.id, challenge.key, challenge.app, challenge.state, text, Math.floor(challenge.ttlMs)],
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
        if (opened === "full") return undefined;
        if (opened !== "again") return opened;
      }
      throw new StorageError("STORAGE_UNAVAILABLE", "identical calls keep opening and ending challenges; try again");
    },

    async move(id, from, to, merge) {
      return engine.write(async (sql, note) => {
        const live = to === "redeemed" || to === "expired" ? null : 1;
        const [row] = await sql.all(
          `UPDATE challenges SET state = $3, live = $4 WHERE id = $1 AND state = $2 AND expires_at > @now
           RETURNING ${COLUMNS}`,
          [id, from, to, live],
        );
        if (!row) return undefined;
        let moved = read(row);
        if (merge) {
          // The row is this transaction's own since the update: nobody else writes the document meanwhile.
          moved = { ...moved, document: { ...moved.document, ...merge } };
          const text = asJson("a challenge", moved.document, MAX_DOCUMENT_BYTES);
          await sql.all("UPDATE challenges SET document = $2 WHERE id = $1", [id, text]);
        }
        note({ topic: "challenge", action: "move", app: moved.app, name: id, by: decider(moved.document) });
        return moved;
      });
    },

    async get(id) {
      const [row] = await engine.read((sql) => sql.all(`SELECT ${COLUMNS} FROM challenges WHERE id = $1`, [id]));
      return row && read(row);
    },

    async list(max) {
      const rows = await engine.read((sql) =>
        sql.all(
          `SELECT ${COLUMNS} FROM challenges WHERE expires_at > @now
           ORDER BY CASE WHEN state = 'pending' THEN 0 ELSE 1 END, created_at, id LIMIT $1`,
          [Math.min(max, MAX_LIST)],
        ),
      );
      return rows.map(read);
    },

    onChange(listener) {
      let stopped = false;
      const watching = feed.watch({
        change: ({ topic, name }) => {
          if (topic === "challenge") listener(name);
        },
        // Which of them have moved is not known: whoever waits looks again.
        resync: () => listener(""),
      });
      // Without the feed nobody is called back; who waits also looks by itself from time to time.
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
    state: row.state as string,
    document: JSON.parse(row.document as string) as JsonObject,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
}
