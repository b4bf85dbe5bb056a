// Limits that several replicas count together. Each leases some tokens at a time, so that the store is asked now and
// then and never for every call.

import type { SharedLimits, TokenRate } from "../../gate/index.js";
import type { Leases } from "../../storage/index.js";

/** What a lease holds is used soon or given up: tokens kept for later would come on top of a later window. */
const LEASE_MS = 5_000;
/** A lease is so much of the whole, at least one token. */
const SHARE = 20;
const MAX_KEYS = 100_000;

interface Held {
  tokens: number;
  until: number;
  /** Nothing to be had before then. */
  emptyUntil: number;
  asking: Promise<void> | undefined;
}

export function sharedLimits(leases: Leases, now: () => number = () => performance.now()): SharedLimits {
  const held = new Map<string, Held>();
  const entryFor = (key: string): Held => {
    let entry = held.get(key);
    if (!entry) {
      if (held.size >= MAX_KEYS) for (const [each, { until }] of held) if (until < now()) held.delete(each);
      if (held.size >= MAX_KEYS) throw new Error("too many callers to keep limits for");
      entry = { tokens: 0, until: 0, emptyUntil: 0, asking: undefined };
      held.set(key, entry);
    }
    return entry;
  };
  const ask = async (key: string, entry: Held, tokens: number, rate: TokenRate): Promise<void> => {
    const want = Math.max(tokens, Math.ceil(rate.burst / SHARE));
    const { granted, retryAfterMs } = await leases.lease(key, want, rate);
    entry.tokens += granted;
    entry.until = now() + LEASE_MS;
    if (granted === 0) entry.emptyUntil = now() + Math.max(1, retryAfterMs);
  };
  return {
    take(key, tokens, rate) {
      const entry = entryFor(key);
      const takeNow = (): boolean => {
        if (entry.until < now()) entry.tokens = 0;
        if (entry.tokens < tokens) return false;
        entry.tokens -= tokens;
        return true;
      };
      if (takeNow()) return 0;
      if (entry.emptyUntil > now()) return entry.emptyUntil - now();
      entry.asking ??= ask(key, entry, tokens, rate).finally(() => {
        entry.asking = undefined;
      });
      return entry.asking.then(() => (takeNow() ? 0 : Math.max(1, entry.emptyUntil - now())));
    },
  };
}
