// What counts once: nonces and proofs, wherever and whenever they come back. Those that come together are written
// together, since each write waits for the disk.

import { createHash } from "node:crypto";
import type { StoredFeed } from "../feed.js";
import { type Engine, type Sql, StorageError } from "../sql.js";
import type { NonceTable } from "../types.js";

const AT_ONCE = 200;
const MAX_WAITING = 10_000;
/** The newest that this process used, for a store that has forgotten them. */
const MAX_REMEMBERED = 20_000;
/** About to expire, it may be swept by a clock that differs. */
const SWEPT_MS = 5_000;

interface Waiting {
  readonly key: string;
  readonly ttlMs: number;
  readonly resolve: (isFirst: boolean) => void;
  readonly reject: (error: unknown) => void;
}

export function onceIn(engine: Engine, feed: StoredFeed): NonceTable {
  const waiting: Waiting[] = [];
  let isWriting = false;
  /** When each expires, by the monotonic clock. */
  const used = new Map<string, number>();
  const remember = (key: string, ttlMs: number): void => {
    used.set(key, performance.now() + ttlMs);
    for (const [oldest, expires] of used) {
      if (used.size <= MAX_REMEMBERED && expires > performance.now()) return;
      used.delete(oldest);
    }
  };
  const writeAgain = async (): Promise<void> => {
    const forgotten = [...used].map(([key, expires]) => ({ key, ttlMs: Math.ceil(expires - performance.now()) }));
    for (let at = 0; at < forgotten.length; at += AT_ONCE) {
      const some = forgotten.slice(at, at + AT_ONCE).filter(({ ttlMs }) => ttlMs > 0);
      await engine.write((sql) => insert(sql, some));
    }
  };
  const isKept = async (sql: Sql): Promise<boolean> => {
    const [newest, expires = 0] = [...used].at(-1) ?? [];
    if (newest === undefined || expires < performance.now() + SWEPT_MS) return true;
    return (await sql.all("SELECT key FROM spent WHERE key = $1", [newest])).length > 0;
  };
  feed.addEvidence({ isKept, writeAgain });

  const writeAll = async (): Promise<void> => {
    isWriting = true;
    while (waiting.length > 0) {
      const some = waiting.splice(0, AT_ONCE);
      try {
        const firsts = await feed.compared(() =>
          engine.write(async (sql) => {
            await feed.checkHistory(sql);
            return insert(sql, some);
          }),
        );
        for (const { key, ttlMs, resolve } of some) {
          if (firsts.has(key)) remember(key, ttlMs);
          // Of the same ones within this write, one is first.
          resolve(firsts.delete(key));
        }
      } catch (error) {
        for (const { reject } of some) reject(error);
      }
    }
    isWriting = false;
  };

  return {
    async forget(id) {
      const key = keyOf(id);
      used.delete(key);
      await engine.write((sql) => sql.all("DELETE FROM spent WHERE key = $1", [key]));
    },
    first(id, ttlMs) {
      if (waiting.length >= MAX_WAITING) {
        return Promise.reject(new StorageError("STORAGE_UNAVAILABLE", "too many wait for the store; try again"));
      }
      return new Promise((resolve, reject) => {
        waiting.push({ key: keyOf(id), ttlMs: Math.ceil(ttlMs), resolve, reject });
        if (!isWriting) void writeAll();
      });
    },
  };
}

function keyOf(id: string): string {
  return createHash("sha256").update(id).digest("base64url");
}

/** Those that were not there. */
async function insert(sql: Sql, some: readonly Pick<Waiting, "key" | "ttlMs">[]): Promise<Set<string>> {
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
}
