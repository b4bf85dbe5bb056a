// Cancellation of one call: by the client, by a timeout, or because the peer is gone. The AbortSignal is made only
// when a handler asks for it, since most never do.

import type { Fault } from "../mcp/index.js";

export class Cancel {
  #fault: Fault | undefined;
  #controller: AbortController | undefined;
  #listener: ((fault: Fault) => void) | undefined;
  /** Few calls have more than one. */
  #more: ((fault: Fault) => void)[] | undefined;

  /** The caller itself took the request back, and waits for no answer. */
  #withdrawn = false;

  get withdrawn(): boolean {
    return this.#withdrawn;
  }

  get fault(): Fault | undefined {
    return this.#fault;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#fault) this.#controller.abort(this.#fault);
    }
    return this.#controller.signal;
  }

  /** The first reason stays. */
  abort(fault: Fault): void {
    if (this.#fault) return;
    this.#fault = fault;
    this.#controller?.abort(fault);
    this.#listener?.(fault);
    for (const listener of this.#more ?? []) listener(fault);
  }

  withdraw(fault: Fault): void {
    this.#withdrawn = true;
    this.abort(fault);
  }

  /** For whoever runs the work. Called at once when the call was already cancelled. */
  onAbort(listener: (fault: Fault) => void): void {
    if (!this.#listener) this.#listener = listener;
    else if (this.#more) this.#more.push(listener);
    else this.#more = [listener];
    if (this.#fault) listener(this.#fault);
  }
}
