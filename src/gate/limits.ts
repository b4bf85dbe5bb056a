// Rate and concurrency limits in memory. GCRA: one number a key says when the next request conforms.

import { deny, type Principal, type Target, type Verdict } from "./types.js";

export interface Limit {
  /** Whose requests are counted together. */
  readonly per: "app" | "agent" | "tool";
  readonly perMinute?: number;
  readonly perHour?: number;
  readonly concurrent?: number;
}

interface Bucket {
  /** Theoretical arrival time, one per window. */
  minute: number;
  hour: number;
  running: number;
}

/** Keys are evicted when idle; a flood of new keys costs memory no more than this. */
const MAX_KEYS = 100_000;
const FREE = (): void => {};

export class Limits {
  readonly #limits: readonly Limit[];
  readonly #buckets = new Map<string, Bucket>();
  readonly #now: () => number;
  constructor(limits: readonly Limit[] = [], now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#now = now;
  }

  /** Takes one request from every limit that applies, or from none. `release` gives the concurrency back. */
  take(principal: Principal, target: Target): { release: () => void } | { denied: Verdict } {
    if (this.#limits.length === 0) return { release: FREE };
    const now = this.#now();
    const taken: Bucket[] = [];
    for (const limit of this.#limits) {
      const bucket = this.#bucket(limit, principal, target, now);
      const waitMs = waitFor(limit, bucket, now);
      if (waitMs > 0) return { denied: limited(limit, Math.ceil(waitMs), target) };
      taken.push(bucket);
    }
    this.#limits.forEach((limit, i) => {
      const bucket = taken[i] as Bucket;
      if (limit.perMinute) bucket.minute = Math.max(bucket.minute, now) + 60_000 / limit.perMinute;
      if (limit.perHour) bucket.hour = Math.max(bucket.hour, now) + 3_600_000 / limit.perHour;
      bucket.running++;
    });
    let released = false;
    return {
      release: () => {
        if (released) return;
        released = true;
        for (const bucket of taken) bucket.running--;
      },
    };
  }

  #bucket(limit: Limit, principal: Principal, target: Target, now: number): Bucket {
    const at = this.#limits.indexOf(limit);
    const who = limit.per === "app" ? principal.app : `${principal.app}/${principal.agent}`;
    const key = limit.per === "tool" ? `${at} ${who} ${target.name}` : `${at} ${who}`;
    let bucket = this.#buckets.get(key);
    if (!bucket) {
      if (this.#buckets.size >= MAX_KEYS) this.#evict(now);
      bucket = { minute: 0, hour: 0, running: 0 };
      this.#buckets.set(key, bucket);
    }
    return bucket;
  }

  /** An idle bucket whose arrival times have passed says the same as a new one. */
  #evict(now: number): void {
    for (const [key, bucket] of this.#buckets) {
      if (bucket.running === 0 && bucket.minute <= now && bucket.hour <= now) this.#buckets.delete(key);
    }
    if (this.#buckets.size >= MAX_KEYS) throw new Error("too many callers to keep limits for");
  }
}

/** Milliseconds until the next request conforms; a full minute's worth may come as a burst. */
function waitFor(limit: Limit, bucket: Bucket, now: number): number {
  let wait = 0;
  if (limit.perMinute) wait = Math.max(wait, bucket.minute + 60_000 / limit.perMinute - 60_000 - now);
  if (limit.perHour) wait = Math.max(wait, bucket.hour + 3_600_000 / limit.perHour - 3_600_000 - now);
  if (limit.concurrent && bucket.running >= limit.concurrent) wait = Math.max(wait, 1);
  return wait;
}

function limited(limit: Limit, retryAfterMs: number, target: Target): Verdict {
  return deny("RateLimited", `limit.${limit.per}`, `over the limit per ${limit.per} for \`${target.name}\``, {
    suggestions: [`Try again in ${Math.max(1, Math.ceil(retryAfterMs / 1000))} s`],
    extra: { retry_after_ms: retryAfterMs },
  });
}
