// Rate and concurrency limits in memory. GCRA: one number a key says when the next request conforms.

import { type CallTarget, type CheckResult, deny, type Principal } from "./types.js";

export interface Limit {
  /** Whose requests are counted together. */
  readonly per: "app" | "agent" | "tool" | "key";
  readonly perMinute?: number;
  readonly perHour?: number;
  /** Calls at once, in this process: each replica and each worker counts its own. */
  readonly concurrent?: number;
  /** Bytes of arguments and results together. What a result goes over is taken from the next calls. */
  readonly bytesPerMinute?: number;
  /** The sum of what calls cost. */
  readonly costPerHour?: number;
  /** What a call of a tool costs, by name or by pattern with `*`; 1 unless named. */
  readonly costs?: Readonly<Record<string, number>>;
}

/** Tokens that several replicas share; each takes them from what it leased, and asks the store only for more. */
export interface SharedLimits {
  /** 0 when they were taken, otherwise the milliseconds until it is worth trying again. */
  take(key: string, tokens: number, rate: TokenRate): number | Promise<number>;
  /** Counts tokens that were used already: the next ones wait for them, on every replica. */
  charge(key: string, tokens: number, rate: TokenRate): void;
}

export interface TokenRate {
  readonly tokens: number;
  readonly periodMs: number;
  readonly burst: number;
}

interface Slot {
  /** Gives the concurrency back and counts what came of it. */
  release(resultBytes?: number): void;
}

export type Taken = Slot | { denied: CheckResult };

/**
 * What is counted. `repeat`: the same call continues after it waited, and was counted before. `refusal`: a call that
 * was denied counts for its caller, never for the application that others share.
 */
export type Counted = "call" | "repeat" | "refusal";

type Named = Pick<CallTarget, "name">;

interface Applied {
  readonly limit: Limit;
  readonly key: string;
}

interface Bucket {
  /** Theoretical arrival time, one per window. */
  minute: number;
  hour: number;
  bytes: number;
  cost: number;
  running: number;
}

const MINUTE = 60_000;
const HOUR = 3_600_000;

/** Keys are evicted when idle; a flood of new keys costs memory no more than this. */
const MAX_KEYS = 100_000;
const FREE: Slot = { release: () => {} };

export class Limits {
  readonly #limits: readonly Limit[];
  readonly #buckets = new Map<string, Bucket>();
  readonly #shared: SharedLimits | undefined;
  readonly #now: () => number;
  constructor(limits: readonly Limit[] = [], now: () => number = () => performance.now(), shared?: SharedLimits) {
    this.#limits = limits;
    this.#now = now;
    this.#shared = shared;
  }

  /** Takes one request from every limit that applies, or from none. */
  take(principal: Principal, target: Named, argumentBytes = 0, counted: Counted = "call"): Taken | Promise<Taken> {
    const own = principal.limits;
    if (this.#limits.length === 0 && !own) return FREE;
    const all: readonly Limit[] = own ? [...this.#limits, { per: "key", ...own }] : this.#limits;
    const limits = all.flatMap((limit, at): Applied[] => {
      const part = counted === "call" ? limit : partOf(limit, counted);
      return part ? [{ limit: part, key: keyOf(at, limit, principal, target) }] : [];
    });
    const slot = this.#takeHere(limits, target, argumentBytes);
    if (!this.#shared || "denied" in slot) return slot;
    return this.#takeShared(this.#shared, limits, target, argumentBytes, slot);
  }

  #takeHere(limits: readonly Applied[], target: Named, argumentBytes: number): Taken {
    const now = this.#now();
    const taken: Bucket[] = [];
    for (const { limit, key } of limits) {
      const bucket = this.#bucket(key, now);
      const waitMs = waitFor(limit, bucket, now, costOf(limit, target), argumentBytes);
      if (waitMs > 0) return { denied: limited(limit, Math.ceil(waitMs), target) };
      taken.push(bucket);
    }
    limits.forEach(({ limit }, i) => {
      const bucket = taken[i] as Bucket;
      if (limit.perMinute) bucket.minute = Math.max(bucket.minute, now) + MINUTE / limit.perMinute;
      if (limit.perHour) bucket.hour = Math.max(bucket.hour, now) + HOUR / limit.perHour;
      if (limit.costPerHour)
        bucket.cost = Math.max(bucket.cost, now) + (HOUR * costOf(limit, target)) / limit.costPerHour;
      chargeBytes(limit, bucket, now, argumentBytes);
      bucket.running++;
    });
    let released = false;
    return {
      release: (resultBytes = 0) => {
        if (released) return;
        released = true;
        const then = this.#now();
        taken.forEach((bucket, i) => {
          bucket.running--;
          chargeBytes((limits[i] as Applied).limit, bucket, then, resultBytes);
        });
      },
    };
  }

  /** Each replica keeps its own count of what runs; what is counted in time is shared. */
  async #takeShared(
    shared: SharedLimits,
    limits: readonly Applied[],
    target: Named,
    argumentBytes: number,
    slot: Slot,
  ): Promise<Taken> {
    for (const { limit, key } of limits) {
      for (const [window, tokens, rate] of windowsOf(limit, target, argumentBytes)) {
        const waitMs = await shared.take(`${key} ${window}`, tokens, rate);
        if (waitMs <= 0) continue;
        slot.release();
        return { denied: limited(limit, Math.ceil(waitMs), target) };
      }
    }
    let released = false;
    return {
      release: (resultBytes = 0) => {
        if (released) return;
        released = true;
        slot.release(resultBytes);
        if (resultBytes <= 0) return;
        for (const { limit, key } of limits) {
          if (limit.bytesPerMinute) shared.charge(`${key} bytes`, resultBytes, rateOf(limit.bytesPerMinute, MINUTE));
        }
      },
    };
  }

  #bucket(key: string, now: number): Bucket {
    let bucket = this.#buckets.get(key);
    if (!bucket) {
      if (this.#buckets.size >= MAX_KEYS) this.#evict(now);
      bucket = { minute: 0, hour: 0, bytes: 0, cost: 0, running: 0 };
      this.#buckets.set(key, bucket);
    }
    return bucket;
  }

  /** An idle bucket whose arrival times have passed says the same as a new one. */
  #evict(now: number): void {
    for (const [key, bucket] of this.#buckets) {
      const times = Math.max(bucket.minute, bucket.hour, bucket.bytes, bucket.cost);
      if (bucket.running === 0 && times <= now) this.#buckets.delete(key);
    }
    if (this.#buckets.size >= MAX_KEYS) throw new Error("too many callers to keep limits for");
  }
}

function keyOf(at: number, limit: Limit, principal: Principal, target: Named): string {
  switch (limit.per) {
    case "app":
      return `${at} ${principal.app}`;
    case "agent":
      return `${at} ${principal.app}/${principal.agent}`;
    case "tool":
      return `${at} ${principal.app}/${principal.agent} ${target.name}`;
    case "key":
      return `key ${principal.app} ${principal.credential ?? principal.agent}`;
  }
}

/** The part of a limit that counts then. */
function partOf(limit: Limit, counted: "repeat" | "refusal"): Limit | undefined {
  const { per, perMinute, perHour, bytesPerMinute } = limit;
  if (counted === "repeat") {
    // Bytes of the result are still to come.
    const { concurrent } = limit;
    return { per, ...(concurrent ? { concurrent } : {}), ...(bytesPerMinute ? { bytesPerMinute } : {}) };
  }
  if (per !== "agent" && per !== "key") return undefined;
  return { per, ...(perMinute ? { perMinute } : {}), ...(perHour ? { perHour } : {}) };
}

function rateOf(tokens: number, periodMs: number): TokenRate {
  return { tokens, periodMs, burst: tokens };
}

function windowsOf(limit: Limit, target: Named, bytes: number): [string, number, TokenRate][] {
  const windows: [string, number, TokenRate][] = [];
  const add = (name: string, tokens: number, most: number | undefined, periodMs: number): void => {
    // More than the whole window could never be had; it waits for an empty window instead.
    if (most) windows.push([name, Math.min(tokens, most), rateOf(most, periodMs)]);
  };
  add("minute", 1, limit.perMinute, MINUTE);
  add("hour", 1, limit.perHour, HOUR);
  add("cost", costOf(limit, target), limit.costPerHour, HOUR);
  // At least one: when results of other replicas have used everything up, a call without arguments waits too.
  add("bytes", Math.max(1, bytes), limit.bytesPerMinute, MINUTE);
  return windows;
}

/** Costs are looked up by name first; the first pattern that fits comes next. */
function costOf({ costs, costPerHour }: Limit, { name }: Named): number {
  if (!costs || !costPerHour) return 1;
  const exact = Object.hasOwn(costs, name) ? costs[name] : undefined;
  if (exact !== undefined) return exact;
  for (const [pattern, cost] of Object.entries(costs)) {
    const star = pattern.indexOf("*");
    if (star < 0) continue;
    const tail = pattern.slice(star + 1);
    if (name.length >= pattern.length - 1 && name.startsWith(pattern.slice(0, star)) && name.endsWith(tail))
      return cost;
  }
  return 1;
}

function chargeBytes(limit: Limit, bucket: Bucket, now: number, bytes: number): void {
  if (limit.bytesPerMinute && bytes > 0) {
    bucket.bytes = Math.max(bucket.bytes, now) + (MINUTE * bytes) / limit.bytesPerMinute;
  }
}

/** Milliseconds until the next request conforms; a full window's worth may come as a burst. */
function waitFor(limit: Limit, bucket: Bucket, now: number, cost: number, bytes: number): number {
  let wait = 0;
  if (limit.perMinute) wait = Math.max(wait, bucket.minute + MINUTE / limit.perMinute - MINUTE - now);
  if (limit.perHour) wait = Math.max(wait, bucket.hour + HOUR / limit.perHour - HOUR - now);
  if (limit.costPerHour) wait = Math.max(wait, bucket.cost + (HOUR * cost) / limit.costPerHour - HOUR - now);
  // One call larger than the whole window could never run; it waits for an empty window instead.
  if (limit.bytesPerMinute) {
    const share = Math.min(MINUTE, (MINUTE * bytes) / limit.bytesPerMinute);
    wait = Math.max(wait, bucket.bytes + share - MINUTE - now);
  }
  if (limit.concurrent && bucket.running >= limit.concurrent) wait = Math.max(wait, 1);
  return wait;
}

function limited(limit: Limit, retryAfterMs: number, target: Named): CheckResult {
  return deny("RateLimited", `limit.${limit.per}`, `over the limit per ${limit.per} for \`${target.name}\``, {
    suggestions: [`Try again in ${Math.max(1, Math.ceil(retryAfterMs / 1000))} s`],
    extra: { retry_after_ms: retryAfterMs },
  });
}
