import { DelegationRefused } from "./refused.js";

const MAX_REMEMBERED = 100_000;

/**
 * Nonces of requests that were let through. Each is remembered for at least `lifeMs`, which no request outlives: two
 * generations, and the older one is dropped as a whole. When there is no room nothing is forgotten early: what cannot be
 * remembered is not let through.
 */
export class SpentNonces {
  readonly #lifeMs: number;
  readonly #max: number;
  #now = new Map<string, object>();
  #before = new Map<string, object>();
  #since = -Infinity;

  constructor(lifeMs: number, max = MAX_REMEMBERED) {
    this.#lifeMs = lifeMs;
    this.#max = max;
  }

  get size(): number {
    return this.#now.size + this.#before.size;
  }

  /**
   * `request` stands for one request: what its tool calls in turn counts as the same use. True for the first of them:
   * who shares the memory with others asks them then.
   */
  spend(nonce: string, request: object, now = Date.now()): boolean {
    if (now - this.#since > this.#lifeMs) {
      this.#before = now - this.#since > 2 * this.#lifeMs ? new Map() : this.#now;
      this.#now = new Map();
      this.#since = now;
    }
    const known = this.#now.get(nonce) ?? this.#before.get(nonce);
    if (known === request) return false;
    if (known !== undefined) throw replayed();
    if (this.size >= this.#max) {
      throw new DelegationRefused(
        "too-many",
        `more than ${this.#max} delegated calls in a short time; wait and try again`,
      );
    }
    this.#now.set(nonce, request);
    return true;
  }
}

export function replayed(): DelegationRefused {
  return new DelegationRefused("replayed", "this delegation token was used before; spend a new one for every call");
}

/** Remembers for every gateway that could be given the same token. */
export interface SharedNonces {
  first(id: string, ttlMs: number): Promise<boolean>;
}
