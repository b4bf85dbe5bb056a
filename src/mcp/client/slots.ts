// A bounded number of requests at once, and a bounded queue for those that wait their turn.

import { ProtocolError } from "./errors.js";

export class Slots {
  readonly #max: number;
  readonly #maxQueued: number;
  readonly #queue = new Set<() => void>();
  #running = 0;
  constructor(max: number, maxQueued: number) {
    this.#max = max;
    this.#maxQueued = maxQueued;
  }

  /** True when a turn is free and now the caller's. */
  take(): boolean {
    if (this.#running >= this.#max) return false;
    this.#running++;
    return true;
  }

  /** Resolves when it is this caller's turn. Rejects with the signal's reason, or when the queue is full. */
  wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#queue.size >= this.#maxQueued) {
      const full = `${this.#running} requests are under way and ${this.#queue.size} are waiting; send fewer at once or raise limits.maxInFlight`;
      return Promise.reject(new ProtocolError("TooMany", full));
    }
    return new Promise((resolve, reject) => {
      const turn = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#queue.delete(turn);
        reject(signal.reason);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#queue.add(turn);
    });
  }

  give(): void {
    const next = this.#queue.values().next().value;
    if (next === undefined) {
      this.#running--;
      return;
    }
    // The slot goes over to the next in line, so `running` stays as it is.
    this.#queue.delete(next);
    next();
  }
}
