// The calling side of a lasting connection: what the clients of stdio, TCP, WebSocket and memory have in common.

import { TransportError } from "./error.js";
import type { ResolvedLimits } from "./limits.js";
import { Outbox, type Port } from "./outbox.js";
import type { ClientEvents, Malformed, SendOptions, Sent } from "./types.js";

const AT_ONCE: Sent = { done: Promise.resolve() };

export class ClientLink {
  readonly #port: Port;
  readonly #events: ClientEvents;
  readonly #outbox: Outbox;
  #closed = false;

  constructor(port: Port, events: ClientEvents, limits: ResolvedLimits) {
    this.#port = port;
    this.#events = events;
    this.#outbox = new Outbox(port, limits, (waiting) => {
      throw new TransportError("slow-peer", `the server reads too slowly: ${waiting} bytes are waiting for it already`);
    });
  }

  /** Resolves when the server is ready for more, so that awaiting every send is all the back-pressure a caller needs. */
  async send(text: string, options: SendOptions = {}): Promise<Sent> {
    options.signal?.throwIfAborted();
    if (this.#closed) throw new TransportError("closed", "the connection is closed; connect again");
    if (!this.#outbox.send(text)) await this.#outbox.drained();
    return AT_ONCE;
  }

  receive(text: string): void {
    if (!this.#closed) this.#events.message(text);
  }

  receiveMalformed(problem: Malformed): void {
    if (this.#closed) return;
    if (this.#events.malformed !== undefined) {
      this.#events.malformed(problem);
      return;
    }
    this.#port.destroy();
    this.gone(new TransportError(problem.kind === "binary-frame" ? "protocol" : problem.kind, problem.message));
  }

  gone(error?: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outbox.close();
    this.#events.closed(error);
  }
}

/** Settles as `work` does, or rejects with what `onTimeout` gives after `timeoutMs`. */
export async function withinTime<T>(work: Promise<T>, timeoutMs: number, onTimeout: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(onTimeout()), timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

export const NOT_STARTED = "the transport has not been started; call start first";
