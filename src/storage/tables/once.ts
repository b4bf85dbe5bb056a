// What counts once: nonces and proofs, wherever and whenever they come back. Those that come together are written
// together, since each write waits for the disk.

import { createHash } from "node:crypto";
import { StorageError } from "../errors.js";
import type { Engine } from "../sql.js";
import type { Once } from "../types.js";

const AT_ONCE = 200;
const MAX_WAITING = 10_000;

interface Waiting {
  readonly key: string;
  readonly ttlMs: number;
  readonly resolve: (isFirst: boolean) => void;
  readonly reject: (error: unknown) => void;
}

export function onceIn(engine: Engine): Once {
  const waiting: Waiting[] = [];
  let isWriting = false;

  const writeAll = async (): Promise<void> => {
    isWriting = true;
    while (waiting.length > 0) {
      const some = waiting.splice(0, AT_ONCE);
      try {
        const firsts = await engine.write(async (sql) => {
          const keys = new Set<string>();
          // In one order everywhere: replicas that write the same ones wait for each other and never in a circle.
          for (const { key, ttlMs } of [...some].sort((a, b) => (a.key < b.key ? -1 : 1))) {
            const done = await sql.all(
              `INSERT INTO spent (key, expires_at) VALUES ($1, @now + CAST($2 AS BIGINT))
               ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at WHERE spent.expires_at <= @now
               RETURNING key`,
              [key, ttlMs],
            );
            if (done.length > 0) keys.add(key);
          }
          return keys;
        });
        // Of the same ones within this write, one is first.
        for (const { key, resolve } of some) resolve(firsts.delete(key));
      } catch (error) {
        for (const { reject } of some) reject(error);
      }
    }
    isWriting = false;
  };

  return {
    first(id, ttlMs) {
      if (waiting.length >= MAX_WAITING) {
        return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", "too many wait for the store; try again"));
      }
      return new Promise((resolve, reject) => {
        const key = createHash("sha256").update(id).digest("base64url");
        waiting.push({ key, ttlMs: Math.ceil(ttlMs), resolve, reject });
        if (!isWriting) void writeAll();
      });
    },
  };
}
