// What has expired is not there for anyone; from time to time it is also removed.

import type { Engine } from "../sql.js";

/** Rows of one transaction: few, because SQLite blocks the event loop and PostgreSQL holds their locks meanwhile. */
const AT_ONCE = 1_000;
/** An ended challenge can be asked about for a while. */
const CHALLENGES_KEPT_MS = 3_600_000;
/** Far longer than anyone waits to learn what became of a commit. */
const COMMITS_KEPT_MS = 3_600_000;
const REPLICAS_KEPT_MS = 7 * 24 * 3_600_000;

/** A ledger that was away for longer begins where the furthest one is. */
const RECORDED_KEPT_MS = 90 * 24 * 3_600_000;

type Sweep = readonly [statement: (lock: string) => string, olderMs: number];

const SWEEPS: readonly Sweep[] = [
  // Of an expired approval request the large part goes at once.
  [
    (lock) => `UPDATE challenges SET payload = '{}' WHERE id IN (SELECT id FROM challenges
       WHERE expires_at < @now - CAST($1 AS BIGINT) AND payload <> '{}' LIMIT $2 ${lock}) RETURNING 1 AS one`,
    0,
  ],
  [removal("challenges", "id", "expires_at"), CHALLENGES_KEPT_MS],
  [removal("sessions", "id", "expires_at"), 0],
  [removal("spent", "key", "expires_at"), 0],
  [removal("letters", "id", "expires_at"), 0],
  [removal("leases", "key", "tat"), 0],
  [removal("replicas", "id", "seen_at"), REPLICAS_KEPT_MS],
  [
    (lock) => `DELETE FROM recorded WHERE ledger IN (SELECT ledger FROM recorded
       WHERE at < @now - CAST($1 AS BIGINT) AND seq < (SELECT MAX(seq) FROM recorded) LIMIT $2 ${lock})
       RETURNING 1 AS one`,
    RECORDED_KEPT_MS,
  ],
  [removal("runtime_values", "app, key", "expires_at"), 0],
];

const POSTGRES_SWEEPS: readonly Sweep[] = [[removal("commits", "id", "at"), COMMITS_KEPT_MS]];

function removal(table: string, id: string, time: string): Sweep[0] {
  return (lock) => `DELETE FROM ${table} WHERE (${id}) IN
    (SELECT ${id} FROM ${table} WHERE ${time} < @now - CAST($1 AS BIGINT) LIMIT $2 ${lock}) RETURNING 1 AS one`;
}

/**
 * Removes everything that has expired, in batches: a round ends when a batch is not full, so it keeps up with any rate
 * of writes. One table's failure does not keep the others; the first is thrown in the end.
 */
export async function sweep(engine: Engine, stop?: AbortSignal): Promise<void> {
  const isPostgres = engine.kind === "postgres";
  // Replicas that sweep together take different rows, and a row that was renewed meanwhile stays.
  const lock = isPostgres ? "FOR UPDATE SKIP LOCKED" : "";
  const failures: unknown[] = [];
  for (const [statement, olderMs] of isPostgres ? [...SWEEPS, ...POSTGRES_SWEEPS] : SWEEPS) {
    const text = statement(lock);
    try {
      let removed = AT_ONCE;
      while (removed === AT_ONCE && !stop?.aborted) {
        removed = (await engine.write((sql) => sql.all(text, [olderMs, AT_ONCE]))).length;
      }
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}
