// Tokens that replicas share. GCRA: one number says when everything handed out so far will have been refilled.

import { StorageError } from "../errors.js";
import type { Engine } from "../sql.js";
import type { Leases, RateLimitTable } from "../types.js";
import { checkName } from "./bounds.js";

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
