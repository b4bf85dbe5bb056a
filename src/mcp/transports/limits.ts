// Limits with every field present and sane, so that no transport has to wonder.

import { DEFAULT_LIMITS, type TransportLimits } from "./types.js";

export type ResolvedLimits = Readonly<Required<TransportLimits>>;

/** INVARIANT: a peer that lets this many times `maxBufferedBytes` pile up is cut off. */
export const CUT_OFF_FACTOR = 4;

/** What an exchange under way costs besides its message: sockets, headers, closures. It bounds their number, too. */
export const IN_FLIGHT_BYTES = 16 * 1024;

const MAY_BE_ZERO: ReadonlySet<string> = new Set(["idleMs"]);

export function resolveLimits(
  given: Partial<TransportLimits> = {},
  defaults: Partial<TransportLimits> = {},
): ResolvedLimits {
  const limits = { ...DEFAULT_LIMITS, ...defaults, ...withoutUndefined(given) } as Required<TransportLimits>;
  for (const [name, value] of Object.entries(limits)) {
    const least = MAY_BE_ZERO.has(name) ? 0 : 1;
    if (!Number.isSafeInteger(value) || value < least) {
      throw new RangeError(`limit ${name} must be a whole number of at least ${least}, not ${String(value)}`);
    }
  }
  return limits;
}

function withoutUndefined(given: Partial<TransportLimits>): Partial<TransportLimits> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
