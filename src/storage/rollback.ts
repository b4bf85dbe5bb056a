// A store that was put back to an older copy by the operator's own means (a file, a dump, a standby that lacked commits)
// has forgotten what was used since. Whoever has proof of it ends everything that could be used a second time.

import { randomBytes } from "node:crypto";
import type { Engine } from "./sql.js";
import { SHARED_KEY_APP } from "./dump.js";

/**
 * Expires open approvals and removes the key of request states, so that those issued before do not count. False when it
 * was already done later than `after`, a time by the store's clock at which the store was not yet put back.
 */
export function settleRollback(engine: Engine, after: number, proof: string): Promise<boolean> {
  const isPostgres = engine.kind === "postgres";
  const changes = isPostgres
    ? "(SELECT topic, action, at FROM changes UNION ALL SELECT topic, action, at FROM unnumbered_changes) AS noted"
    : "changes";
  return engine.write(async (sql, note) => {
    // Replicas find it at the same time: one of them does it. SQLite has one writer.
    if (isPostgres) await sql.all("SELECT id FROM store FOR UPDATE");
    const done = `SELECT 1 AS one FROM ${changes}
       WHERE topic = 'store' AND action = 'restored' AND at > CAST($1 AS BIGINT) LIMIT 1`;
    if ((await sql.all(done, [Math.floor(after)])).length > 0) return false;
    await sql.all("UPDATE challenges SET state = 'expired', live = NULL WHERE state IN ('pending', 'approved')");
    await sql.all("DELETE FROM tokens WHERE app = $1", [SHARED_KEY_APP]);
    // A new epoch: what replicas keep beside the store does not belong to it any more.
    await sql.all("UPDATE store SET id = $1", [randomBytes(16).toString("hex")]);
    note({ topic: "token", action: "remove", app: SHARED_KEY_APP, name: SHARED_KEY_APP, by: "gateway" });
    note({ topic: "store", action: "restored", app: "", name: proof, by: "gateway" });
    return true;
  });
}
