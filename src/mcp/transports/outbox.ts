// Sending to a peer that may read slowly. Up to `maxBufferedBytes` wait without a word; above it the sender is told
// to wait; at four times that the peer is given up, because what waits is memory of ours.

import { type ByteBudget, Charge } from "../index.js";
import {
  type ClientEvents,
  CUT_OFF_FACTOR,
  type Malformed,
  type ResolvedLimits,
  type SendOptions,
  type Sent,
  TransportError,
  tooLargeToSend,
} from "./types.js";

/** The far end of a connection, as little of it as the rules above need. */
export interface Port {
  /** Bytes written that the peer has not taken yet. */
  readonly waiting: number;
  /** Calls `taken` when the bytes are on their way; `waiting` no longer counts them then. */
  write(text: string | Buffer, taken: () => void): void;
  /** Stop and start reading from the peer. */
  pause(): void;
  resume(): void;
  /** Lets what is waiting go out, then closes. */
  end(reason?: string): void;
  /** Closes at once. */
  destroy(): void;
}

export class Outbox {
  readonly #port: Port;
  readonly #limits: ResolvedLimits;
  readonly #overflow: (waiting: number) => void;
  readonly #caughtUp: (() => void) | undefined;
  readonly #charge = new Charge(undefined);
  #waiters: (() => void)[] = [];
  #slow = false;
  #closed = false;

  constructor(port: Port, limits: ResolvedLimits, overflow: (waiting: number) => void, caughtUp?: () => void) {
    this.#port = port;
    this.#limits = limits;
    this.#overflow = overflow;
    this.#caughtUp = caughtUp;
  }

  send(text: string | Buffer): boolean {
    if (this.#closed) return false;
    const bytes = typeof text === "string" ? Buffer.byteLength(text) : text.length;
    if (bytes > this.#limits.maxMessageBytes) throw tooLargeToSend(bytes, this.#limits.maxMessageBytes);
    // Looked at before writing, so that one large text to a healthy peer is never the reason to cut it off.
    if (this.#port.waiting >= CUT_OFF_FACTOR * this.#limits.maxBufferedBytes) {
      this.#overflow(this.#port.waiting);
      return false;
    }
    this.#port.write(text, this.#taken);
    if (!this.#charge.set(this.#port.waiting)) {
      this.#overflow(this.#port.waiting);
      return false;
    }
    if (this.#port.waiting > this.#limits.maxBufferedBytes) this.#slow = true;
    return !this.#slow;
  }

  drained(): Promise<void> {
    if (!this.#slow || this.#closed) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  /** Charges what waits for the peer to this budget from now on; over it the peer is given up. */
  chargeTo(budget: ByteBudget): void {
    this.#charge.move(budget);
  }

  close(): void {
    this.#closed = true;
    this.#charge.set(0);
    this.#release();
  }

  readonly #taken = (): void => {
    if (!this.#closed) this.#charge.set(this.#port.waiting);
    if (!this.#slow || this.#closed || this.#port.waiting > this.#limits.maxBufferedBytes / 2) return;
    this.#slow = false;
    this.#caughtUp?.();
    this.#release();
  };

  #release(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }
}

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
