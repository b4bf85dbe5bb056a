// What has expired is not there for anyone; from time to time it is also removed.

import type { Engine } from "../sql.js";

const AT_ONCE = 10_000;
/** An ended challenge can be asked about for a while. */
const CHALLENGES_KEPT_MS = 3_600_000;
/** Far longer than anyone waits to learn what became of a commit. */
const COMMITS_KEPT_MS = 3_600_000;
const REPLICAS_KEPT_MS = 7 * 24 * 3_600_000;

const SWEEPS: readonly (readonly [statement: string, olderMs: number])[] = [
  [of("challenges", "id", "expires_at"), CHALLENGES_KEPT_MS],
  [of("sessions", "id", "expires_at"), 0],
  [of("spent", "key", "expires_at"), 0],
  [of("letters", "id", "expires_at"), 0],
  [of("leases", "key", "tat"), 0],
  [of("replicas", "id", "seen_at"), REPLICAS_KEPT_MS],
  [
    `DELETE FROM runtime_values WHERE (app, key) IN
       (SELECT app, key FROM runtime_values WHERE expires_at < @now - CAST($1 AS BIGINT) LIMIT $2)`,
    0,
  ],
];

const POSTGRES_SWEEPS: typeof SWEEPS = [[of("commits", "id", "at"), COMMITS_KEPT_MS]];

function of(table: string, id: string, time: string): string {
  return `DELETE FROM ${table} WHERE ${id} IN (SELECT ${id} FROM ${table} WHERE ${time} < @now - CAST($1 AS BIGINT) LIMIT $2)`;
}

/** At most ten thousand of each; the next round takes the rest. */
export async function sweep(engine: Engine): Promise<void> {
  const sweeps = engine.kind === "postgres" ? [...SWEEPS, ...POSTGRES_SWEEPS] : SWEEPS;
  for (const [statement, olderMs] of sweeps) {
    await engine.write((sql) => sql.all(statement, [olderMs, AT_ONCE]));
  }
}
