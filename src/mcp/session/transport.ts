// A connection that all calls share: texts in, texts out, in order. stdio, TCP, WebSocket and the old HTTP+SSE.

import type { Fault } from "../index.js";

export interface PersistentTransport {
  /** Resolves when texts can be sent. Rejects with a Fault. */
  open(events: PersistentTransportEvents): Promise<void>;
  /** Throws a Fault, or rejects, when the server does not take what we send, or is gone. */
  send(text: string): void | Promise<void>;
  close(): Promise<void>;
}

export interface PersistentTransportEvents {
  message(text: string): void;
  /** Bytes that are no text. */
  malformed(why: string): void;
  /** A text over the size limit, of which a few characters from both ends are known. */
  oversized(hint: string): void;
  /** Once, when the other side went away. */
  closed(why: string): void;
}

/** A queue in front of a server that does not read is memory of ours. */
export interface UnsentLimit {
  readonly maxUnsentBytes: number;
  readonly toFault: () => Fault;
}
