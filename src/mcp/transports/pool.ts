// undici's connection pool alone. The whole package costs five times as much to load, most of it for `fetch`, caches and
// mocks, and every short command that calls a gateway would pay for it.

import { createRequire } from "node:module";
import type { Pool } from "undici";

let pool: typeof Pool | undefined;

/** `loadPool` returns undici's `Pool`; the first call loads it. Only `dispatch` is available, no `request` or `stream`. */
export function loadPool(): typeof Pool {
  pool ??= createRequire(import.meta.url)("undici/lib/dispatcher/pool.js") as typeof Pool;
  return pool;
}
