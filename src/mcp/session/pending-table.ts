// Calls in flight by id. A ring instead of a Map: entries come and go all the time, and the tables that a Map
// leaves behind as it does so keep young garbage alive until the next full collection, which doubled the cost of a call.

import type { PendingRequest } from "./pending.js";

export class PendingTable {
  readonly #slots: (PendingRequest | undefined)[];
  readonly #mask: number;
  #lastId = 0;
  #size = 0;

  constructor(atLeast: number) {
    const capacity = 2 ** Math.ceil(Math.log2(atLeast));
    this.#slots = Array.from({ length: capacity }, () => undefined);
    this.#mask = capacity - 1;
  }

  get size(): number {
    return this.#size;
  }

  /** An id that was never used before; undefined when there is no room. One after the other, so that they stay short. */
  nextId(): number | undefined {
    if (this.#size > this.#mask) return undefined;
    // A call that takes long keeps its place, and the ids that would fall on it are left out.
    do this.#lastId++;
    while (this.#slots[this.#lastId & this.#mask] !== undefined);
    return this.#lastId;
  }

  add(pending: PendingRequest): void {
    this.#slots[pending.id & this.#mask] = pending;
    this.#size++;
  }

  get(id: unknown): PendingRequest | undefined {
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) return undefined;
    const found = this.#slots[id % (this.#mask + 1)];
    return found?.id === id ? found : undefined;
  }

  /** False when it was not there. */
  remove(pending: PendingRequest): boolean {
    const slot = pending.id & this.#mask;
    if (this.#slots[slot] !== pending) return false;
    this.#slots[slot] = undefined;
    this.#size--;
    return true;
  }

  *[Symbol.iterator](): Generator<PendingRequest> {
    for (const pending of this.#slots) if (pending !== undefined) yield pending;
  }
}
