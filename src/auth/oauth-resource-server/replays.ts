// Which proofs were used. INVARIANT: one that may still count is never forgotten; where there is no more room, nobody
// gets in instead.

import { Fault } from "../../mcp/index.js";

/**
 * True to exactly the first caller with this id, for as long as `ttlMs`. Throws when it cannot tell. Ids have at most 128
 * visible ASCII characters.
 */
export type NonceStore = (id: string, ttlMs: number) => boolean | Promise<boolean>;

export interface ReplayBounds {
  readonly max?: number;
  /** Of one key, so that no other has to wait for it. */
  readonly maxOfOne?: number;
  readonly now?: () => number;
}

const DEFAULTS = { max: 200_000, maxOfOne: 50_000 };

/** In this process. What is before the last `:` of an id is whose it is. */
export function onceHere({ now = Date.now, ...bounds }: ReplayBounds = {}): NonceStore {
  const { max, maxOfOne } = { ...DEFAULTS, ...bounds };
  /** Each until when, in the order of their use: the first is the first to go. */
  const used = new Map<string, number>();
  const ofOne = new Map<string, number>();

  const forget = (at: number): void => {
    for (const [id, until] of used) {
      if (until > at) return;
      used.delete(id);
      const left = (ofOne.get(ownerOf(id)) ?? 0) - 1;
      if (left > 0) ofOne.set(ownerOf(id), left);
      else ofOne.delete(ownerOf(id));
    }
  };

  return (id, ttlMs) => {
    const at = now();
    forget(at);
    if (used.has(id)) return false;
    const own = ofOne.get(ownerOf(id)) ?? 0;
    if (own >= maxOfOne) throw new Fault("TooMany", `${maxOfOne} proofs of this key were used just now; try again`);
    if (used.size >= max) throw new Fault("Unavailable", "no more proofs can be remembered at the moment; try again");
    used.set(id, at + ttlMs);
    ofOne.set(ownerOf(id), own + 1);
    return true;
  };
}

function ownerOf(id: string): string {
  return id.slice(0, id.lastIndexOf(":"));
}
