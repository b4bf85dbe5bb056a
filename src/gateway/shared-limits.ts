// Limits that several replicas count together. Each leases some tokens at a time, so that the store is asked now and
// then and never for every call.

import type { SharedLimits, TokenRate } from "../policy/index.js";
import type { Leases } from "../storage/index.js";

/** What a lease holds is used soon or given up: tokens kept for later would come on top of a later window. */
const LEASE_MS = 5_000;
/** A lease is at most so much of the whole, at least one token. */
const SHARE = 20;
const MAX_KEYS = 100_000;

/** What was used already is written to the store together, so much later. */
const CHARGE_MS = 50;
const RETRY_CHARGE_MS = 1_000;

interface Held {
  tokens: number;
  /** How many the next lease is for, and how many were used since the last one that was over. */
  size: number;
  used: number;
  until: number;
  /** So many tokens, or more, are not to be had before then. */
  empty: { readonly tokens: number; readonly until: number };
  asking: Promise<void> | undefined;
  /** Used and not yet known to the store. */
  debt: number;
  charging: NodeJS.Timeout | undefined;
}

export function sharedLimits(leases: Leases, now: () => number = () => performance.now()): SharedLimits {
  const held = new Map<string, Held>();
  const entryFor = (key: string): Held => {
    let entry = held.get(key);
    if (!entry) {
      if (held.size >= MAX_KEYS)
        for (const [each, { until, debt }] of held) if (until < now() && debt === 0) held.delete(each);
      if (held.size >= MAX_KEYS) throw new Error("too many callers to keep limits for");
      entry = {
        tokens: 0,
        size: 1,
        used: 0,
        until: 0,
        empty: { tokens: 0, until: 0 },
        asking: undefined,
        debt: 0,
        charging: undefined,
      };
      held.set(key, entry);
    }
    return entry;
  };
  const ask = async (key: string, entry: Held, tokens: number, rate: TokenRate): Promise<void> => {
    // A replica that has used up a lease gets twice as much; one whose lease is over, what it used of it. Many replicas
    // that use little of a limit would otherwise hold all of it.
    entry.size = entry.until < now() ? entry.used : 2 * entry.size;
    entry.size = Math.min(Math.max(1, entry.size), Math.ceil(rate.burst / SHARE));
    if (entry.until < now()) entry.used = 0;
    const want = Math.max(tokens, entry.size);
    const { granted, retryAfterMs } = await leases.lease(key, want, rate, tokens);
    if (granted === 0) {
      entry.empty = { tokens, until: now() + Math.max(1, retryAfterMs) };
      return;
    }
    // Tokens of a lease that is over are not renewed by the next one.
    entry.tokens = granted + (entry.until < now() ? 0 : entry.tokens);
    entry.until = now() + LEASE_MS;
  };
  const takeHeld = (entry: Held, tokens: number): number => {
    if (entry.until < now()) entry.tokens = 0;
    const taken = Math.min(entry.tokens, tokens);
    entry.tokens -= taken;
    entry.used += taken;
    return taken;
  };
  const takeNow = (entry: Held, tokens: number): boolean => {
    if (entry.until < now() || entry.tokens < tokens) return false;
    return takeHeld(entry, tokens) === tokens;
  };
  const waitFor = ({ empty }: Held, tokens: number): number =>
    tokens >= empty.tokens ? Math.max(0, empty.until - now()) : 0;
  const takeLeased = async (key: string, entry: Held, tokens: number, rate: TokenRate): Promise<number> => {
    // Calls that come together share a lease; those for whom nothing is left ask again. Each round serves one of them
    // at least, or learns that there is no more.
    for (;;) {
      entry.asking ??= ask(key, entry, tokens, rate).finally(() => {
        entry.asking = undefined;
      });
      await entry.asking;
      if (takeNow(entry, tokens)) return 0;
      const waitMs = waitFor(entry, tokens);
      if (waitMs > 0) return waitMs;
    }
  };
  const writeDebt = async (key: string, entry: Held, rate: TokenRate): Promise<void> => {
    const { debt } = entry;
    let nextMs = CHARGE_MS;
    try {
      await leases.charge(key, debt, rate);
      entry.debt -= debt;
    } catch {
      // Kept: the store is away, and calls are refused meanwhile in any case.
      nextMs = RETRY_CHARGE_MS;
    }
    entry.charging = undefined;
    if (entry.debt > 0) writeLater(key, entry, rate, nextMs);
  };
  const writeLater = (key: string, entry: Held, rate: TokenRate, afterMs: number): void => {
    entry.charging ??= setTimeout(() => void writeDebt(key, entry, rate), afterMs).unref();
  };
  return {
    take(key, tokens, rate) {
      const entry = entryFor(key);
      if (takeNow(entry, tokens)) return 0;
      const waitMs = waitFor(entry, tokens);
      return waitMs > 0 ? waitMs : takeLeased(key, entry, tokens, rate);
    },
    charge(key, tokens, rate) {
      const entry = entryFor(key);
      entry.debt += tokens - takeHeld(entry, tokens);
      if (entry.debt > 0) writeLater(key, entry, rate, CHARGE_MS);
    },
  };
}
