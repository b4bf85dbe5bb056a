// Whether a connection is read. The flow of its caller decides that while nothing is under way on the connection.

import type { CallerFlow, FlowConnection } from "./types.js";

export class ConnectionFlow implements FlowConnection {
  /** Nothing is read from the connection now. */
  isPaused = false;
  readonly #source: FlowConnection;
  #flow: CallerFlow | undefined = undefined;
  /** It carries requests of several callers, as the connections of a proxy do: pausing it for one would stop others. */
  #isShared = false;
  #isClosed = false;

  constructor(source: FlowConnection) {
    this.#source = source;
  }

  /** A request of this caller arrived. */
  arrived(flow: CallerFlow | undefined): void {
    const current = this.#flow;
    if (flow === current) {
      current?.leave(this);
      this.resume();
    } else if (flow !== undefined && !this.#isShared && !this.#isClosed) this.#carry(flow);
  }

  /** Nothing is under way on the connection. */
  rest(): void {
    if (!this.#isClosed) this.#flow?.rest(this);
  }

  /** Reads on, whatever the caller's flow is: the server closes, or the connection has closed. */
  close(): void {
    this.#isClosed = true;
    this.#flow?.detach(this);
    this.#flow = undefined;
    this.resume();
  }

  pause(): void {
    if (this.isPaused) return;
    this.isPaused = true;
    this.#source.pause();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    this.#source.resume();
  }

  #carry(flow: CallerFlow): void {
    const previous = this.#flow;
    previous?.detach(this);
    this.#isShared = previous !== undefined && !previous.isAnonymous;
    this.#flow = this.#isShared ? undefined : flow;
    this.#flow?.attach();
    this.resume();
  }
}
