// Circuit breaker: opens after a number of consecutive failures, then probes with one request. Each pause is longer than
// the one before, up to a limit. With it the slots of the calls that run at the same time.

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
  /** When the call that probes was admitted; undefined while none does. */
  #probingSince: number | undefined;

  constructor(options: BreakerOptions, now: () => number = steadyNow) {
    this.#options = options;
    this.#now = now;
  }

  get state(): "closed" | "open" | "half-open" {
    if (this.#openUntil === undefined) return "closed";
    return this.#probingSince !== undefined || this.#now() >= this.#openUntil ? "half-open" : "open";
  }

  get retryAt(): number | undefined {
    return this.#openUntil;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Whether a call may be sent now. The outcome of the one that probes has to be reported. */
  admit(): boolean {
    if (this.#openUntil === undefined) return true;
    const now = this.#now();
    if (now < this.#openUntil || now - (this.#probingSince ?? Number.NEGATIVE_INFINITY) < PROBE_MS) return false;
    this.#probingSince = now;
    return true;
  }

  success(): void {
    this.#failures = 0;
    this.#rests = 0;
    this.#openUntil = undefined;
    this.#probingSince = undefined;
  }

  /** True when this failure is the one that opens the circuit. */
  failure(): boolean {
    this.#failures++;
    const wasProbe = this.#probingSince !== undefined;
    this.#probingSince = undefined;
    if (!wasProbe && (this.#openUntil !== undefined || this.#failures < this.#options.failuresToOpen)) return false;
    this.#openUntil = this.#now() + pauseMs(this.#rests++, this.#options);
    return true;
  }

  /** Neither: the caller lost interest. */
  neutral(): void {
    this.#probingSince = undefined;
  }
}

/** A server that is back is called within 5 s, the call that tries it included. */
const LONGEST_PAUSE_MS = 2_000;
/** A probe that was sent just before the server came back may never be answered: after so long the next call probes too. */
export const PROBE_MS = 2_000;

/** Doubles with every attempt; a little apart for each server, so that they do not all come back at once. */
export function pauseMs(attempt: number, { backoffMs, maxBackoffMs }: Omit<BreakerOptions, "failuresToOpen">): number {
  const ms = Math.min(LONGEST_PAUSE_MS, maxBackoffMs, backoffMs * 2 ** Math.min(attempt, 30));
  return ms * (0.9 + Math.random() * 0.2);
}

// So many at a time, the others in line.

export class CallSlots {
  readonly #max: number;
  readonly #line: (() => void)[] = [];
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get taken(): number {
    return this.#taken;
  }

  /** True when a turn is free and now the caller's. */
  take(): boolean {
    if (this.#taken >= this.#max) return false;
    this.#taken++;
    return true;
  }

  /** Resolves when it is the caller's turn; a signal that came first gives the place away. */
  wait(isStillWanted: () => boolean): Promise<void> {
    if (this.take()) return Promise.resolve();
    return new Promise((resolve) => {
      this.#line.push(() => {
        if (isStillWanted()) resolve();
        else this.give();
      });
    });
  }

  give(): void {
    const next = this.#line.shift();
    // The turn passes on as it is.
    if (next) next();
    else this.#taken--;
  }
}
