// A server that keeps failing is given a rest: after so many failures in a row nothing is sent for a while, then one
// call goes first, and what becomes of it decides. Each rest is longer than the one before, up to a limit.

import { steadyNow } from "../mcp/index.js";

export interface BreakerOptions {
  readonly failuresToOpen: number;
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
}

export class Breaker {
  readonly #options: BreakerOptions;
  readonly #now: () => number;
  #failures = 0;
  #rests = 0;
  #openUntil: number | undefined;
  #probing = false;

  constructor(options: BreakerOptions, now: () => number = steadyNow) {
    this.#options = options;
    this.#now = now;
  }

  get state(): "closed" | "open" | "half-open" {
    if (this.#openUntil === undefined) return "closed";
    return this.#probing || this.#now() >= this.#openUntil ? "half-open" : "open";
  }

  get retryAt(): number | undefined {
    return this.#openUntil;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Whether a call may go now. When this is the one that tries, its outcome has to be told. */
  admit(): boolean {
    if (this.#openUntil === undefined) return true;
    if (this.#probing || this.#now() < this.#openUntil) return false;
    this.#probing = true;
    return true;
  }

  success(): void {
    this.#failures = 0;
    this.#rests = 0;
    this.#openUntil = undefined;
    this.#probing = false;
  }

  /** True when this failure is the one that opens the circuit. */
  failure(): boolean {
    this.#failures++;
    const wasProbe = this.#probing;
    this.#probing = false;
    if (!wasProbe && (this.#openUntil !== undefined || this.#failures < this.#options.failuresToOpen)) return false;
    this.#openUntil = this.#now() + pauseMs(this.#rests++, this.#options);
    return true;
  }

  /** Neither: the caller lost interest. */
  neutral(): void {
    this.#probing = false;
  }
}

/** Doubles with every attempt; a little apart for each server, so that they do not all come back at once. */
export function pauseMs(attempt: number, { backoffMs, maxBackoffMs }: Omit<BreakerOptions, "failuresToOpen">): number {
  const ms = Math.min(maxBackoffMs, backoffMs * 2 ** Math.min(attempt, 30));
  return ms * (0.9 + Math.random() * 0.2);
}
