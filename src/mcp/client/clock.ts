// How long a request may take.

import { type McpError, ProtocolError, ToolFailure } from "./errors.js";

export interface Timed {
  readonly method: string;
  /** 0 means that only the signal ends it. */
  readonly timeoutMs: number;
  readonly totalMs: number;
  readonly signal?: AbortSignal;
}

/** The time a request has: its timeout, started again by progress, within the total; and the caller's own signal. */
export class Clock {
  readonly #stop = new AbortController();
  readonly #ask: Timed;
  readonly #startedAt = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(ask: Timed) {
    this.#ask = ask;
    if (ask.signal?.aborted) this.#onAbort();
    ask.signal?.addEventListener("abort", this.#onAbort, { once: true });
    this.touch();
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  touch(): void {
    const { timeoutMs, totalMs, method } = this.#ask;
    if (timeoutMs === 0 || this.signal.aborted) return;
    clearTimeout(this.#timer);
    const leftMs = Math.min(timeoutMs, totalMs - (performance.now() - this.#startedAt));
    this.#timer = setTimeout(() => this.#stop.abort(timedOut(method, timeoutMs)), Math.max(0, leftMs));
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#ask.signal?.removeEventListener("abort", this.#onAbort);
  }

  readonly #onAbort = (): void => {
    const detail = { cause: this.#ask.signal?.reason };
    const message = `${this.#ask.method} was cancelled by the caller`;
    this.#stop.abort(
      this.#ask.method === "tools/call"
        ? new ToolFailure("Cancelled", message, detail)
        : new ProtocolError("Cancelled", message, detail),
    );
  };
}

function timedOut(method: string, timeoutMs: number): McpError {
  const message = `${method} was not answered within ${timeoutMs} ms`;
  const detail = { suggestions: ["Try again later", "Give this call a longer timeoutMs"] };
  return method === "tools/call"
    ? new ToolFailure("ToolTimeout", message, detail)
    : new ProtocolError("ToolTimeout", message, detail);
}
