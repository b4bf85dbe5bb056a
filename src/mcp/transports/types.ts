// One shape for every transport. A transport moves texts; it knows caps, framing and who the peer is,
// and nothing of MCP. What a text means is decided by the handler behind it.

import type { IncomingHttpHeaders } from "node:http";
import { type ByteBudget, type ErrorType, Fault } from "../index.js";

export type TransportKind = "stdio" | "http" | "websocket" | "tcp" | "memory";

export interface Peer {
  readonly transport: TransportKind;
  /** Remote address for logs and limits; for stdio the name of the operating system's user. */
  readonly address: string;
  /** HTTP headers of the request or of the WebSocket upgrade; absent on other transports. */
  readonly headers?: IncomingHttpHeaders;
  /** What those headers came with: the method, and the path as it was written, without the query. */
  readonly method?: string;
  readonly path?: string;
  /** `1.1` or `1.0`, where those headers came by HTTP. */
  readonly httpVersion?: string;
}

/** A peer that stays connected: stdio, TCP, WebSocket, memory. */
export interface Channel {
  readonly peer: Peer;
  /**
   * Sends one text. False when the peer reads too slowly and the caller should wait for `drained`, and when it is
   * gone. Throws a `TransportError` of kind `too-large` when the text is over `maxMessageBytes`; nothing is sent then.
   */
  send(text: string): boolean;
  /** Resolves when the peer has caught up, or at once when it has. Rejects never; a dead peer counts as drained. */
  drained(): Promise<void>;
  close(reason?: string): void;
  readonly closed: boolean;
  onClose(listener: () => void): void;
  /** The peer has authenticated: messages up to `maxMessageBytes` are accepted and charged to this budget. */
  authenticated?(budget?: ByteBudget, flow?: CallerFlow): void;
}

/**
 * The way back for one arriving text. Exactly one `end` per exchange, for notifications and responses too: until then
 * the exchange counts as under way. `send` and `end` throw a `TransportError` of kind `too-large` when the text is over
 * `maxMessageBytes`; nothing is sent then, and the exchange still waits for its `end`. After `end` or an abort all
 * calls are ignored.
 */
export interface Reply {
  /**
   * A message that comes before the answer: progress, a log line, a request to the client. On HTTP it turns the
   * answer into an event stream; `eventId` makes the event resumable. False means slow reader, see `drained`.
   */
  send(text: string, eventId?: string): boolean;
  drained(): Promise<void>;
  /** The answer, or nothing for a notification. Status and headers matter to HTTP alone. */
  end(text?: string | Buffer, head?: ReplyHead): void;
  /**
   * HTTP: start the event stream now, before there is anything to say (listen streams, GET). `retryMs` tells the
   * client how long to wait before it resumes. `send("", id)` writes an event that only carries an id.
   */
  open(headers?: Readonly<Record<string, string>>, retryMs?: number): void;
  readonly ended: boolean;
  /** The peer went away before `end`; called at once when it already has. */
  onAbort(listener: () => void): void;
}

export interface ReplyHead {
  status?: number;
  headers?: Readonly<Record<string, string>>;
}

/** One text that arrived: a JSON-RPC message or batch, within the size cap, valid UTF-8, not parsed. */
export interface Inbound {
  readonly text: string;
  readonly peer: Peer;
  /** The lasting connection it came on; absent on HTTP, where every exchange stands alone. */
  readonly channel?: Channel;
  readonly reply: Reply;
}

/** HTTP verbs other than POST on the MCP path, and other paths that the handler claims. */
export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly peer: Peer;
  /** The body as text, within the size cap ("" when there is none). */
  readonly body: string;
  readonly reply: Reply;
}

/** A connection on which nothing is under way. */
export interface FlowConnection {
  /** Stops reading: what the peer sends stays in the kernel. */
  pause(): void;
  resume(): void;
}

/** The connections of one caller. Those on which nothing is under way are not read while the caller has sent too much. */
export interface CallerFlow {
  /** The caller is not known: the next request of the connection may be from another. */
  readonly isAnonymous: boolean;
  /** A connection carries requests of this caller, until `detach`. */
  attach(): void;
  detach(connection: FlowConnection): void;
  /** Nothing is under way on the connection: from now on the flow pauses and resumes it. */
  rest(connection: FlowConnection): void;
  /** Something is under way on it. */
  leave(connection: FlowConnection): void;
}

/** What the credential in the head of a request, or of a WebSocket upgrade, allows before anything else is read. */
export interface Admission {
  /** Largest message that is read from this peer; `maxMessageBytes` unless given. */
  readonly maxBytes?: number;
  /** What the unfinished, unanswered and unsent bytes of this peer are charged to. */
  readonly budget?: ByteBudget;
  /** When the connection is read after this request. */
  readonly flow?: CallerFlow;
  /** Why the caller is not known. */
  readonly fault?: Fault;
  /** Answers a message that is over `maxBytes`. */
  readonly refuse?: (reply: Reply) => void;
}

/** What stands behind a listening transport. INVARIANT: no method throws, and `admit` does not reject. */
export interface TransportHandler {
  /** The head of a request, or a connection, has arrived. Without it every peer may send `maxMessageBytes`. */
  admit?(peer: Peer): Admission | Promise<Admission>;
  message(inbound: Inbound): void;
  /** A lasting peer arrived. */
  connected?(channel: Channel): void;
  /** HTTP only: anything but POST on the MCP path. Return false for 404. */
  http?(request: HttpRequest): boolean;
  /**
   * Framing failed: an over-long or undecodable text. The transport has already decided whether the connection
   * survives; the handler answers through `reply`.
   */
  malformed?(problem: Malformed, peer: Peer, reply: Reply): void;
}

export interface Malformed {
  /** `too-many`: a memory budget is used up; the same message may be accepted later. */
  readonly kind: "too-large" | "too-many" | "not-utf8" | "binary-frame";
  readonly message: string;
  /** How the message began, byte for character, as far as it is there: its sender waits for an answer with its id. */
  readonly head?: string;
}

export interface TransportLimits {
  /** Largest text accepted or sent. */
  maxMessageBytes: number;
  /** Bytes waiting for a slow reader before the peer counts as slow; at four times this it is disconnected. */
  maxBufferedBytes: number;
  maxConnections: number;
  /** Connections of one remote address; a proxy in front is one address. */
  maxConnectionsPerAddress?: number;
  /**
   * A connection with nothing under way is closed after this long; 0 means never, which is the default on stdio and in
   * memory, where the peer is ours alone. A peer that takes nothing of what waits for it this long is cut off as well.
   */
  idleMs: number;
  /** HTTP: time to receive the whole head, and the whole body. TCP: time to receive a whole line, by `bodyMs`. */
  headersMs: number;
  bodyMs: number;
  /** HTTP: a body that arrives more slowly than this, on average after five seconds, is given up. */
  minBodyBytesPerSecond?: number;
  /** Unfinished and unanswered messages of all connections together, where the handler has no budget of its own. */
  maxPartialBytes?: number;
}

export const DEFAULT_LIMITS: TransportLimits = {
  maxMessageBytes: 4 * 1024 * 1024,
  maxBufferedBytes: 1024 * 1024,
  maxConnections: 10_000,
  maxConnectionsPerAddress: 5_000,
  idleMs: 120_000,
  headersMs: 10_000,
  bodyMs: 30_000,
  minBodyBytesPerSecond: 1_024,
  maxPartialBytes: 64 * 1024 * 1024,
};

export interface Listener {
  /** Where it listens, as a client would write it: `http://127.0.0.1:7420/mcp`, `tcp://…`, `ws://…`, `stdio:`. */
  readonly url: string;
  readonly connections: number;
  /** Stops accepting, lets exchanges under way finish within `graceMs`, then closes everything. */
  close(graceMs?: number): Promise<void>;
}

/** The calling side. All texts that arrive, answers and server messages alike, go to one callback. */
export interface ClientTransport {
  readonly kind: TransportKind;
  start(events: ClientEvents): Promise<void>;
  /**
   * Sends one text. Resolves when it has been handed over (HTTP: when the response head arrived; messages of the
   * response are delivered through `events.message`, and `done` resolves after the last of them).
   */
  send(text: string, options?: SendOptions): Promise<Sent>;
  close(): Promise<void>;
}

export interface ClientEvents {
  message(text: string, eventId?: string): void;
  /** Once, after `start` succeeded: without an error when this side closed, with one when the peer went away. */
  closed(error?: Error): void;
  /**
   * The server sent a text that is over the cap or undecodable, so some request will never be answered. Without this
   * callback the connection is closed with an error. (On HTTP the `done` of that exchange rejects instead.)
   */
  malformed?(problem: Malformed): void;
}

export interface SendOptions {
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
  /** HTTP: takes the events of this response's stream, instead of `ClientEvents.message`. A plain body is in `Sent`. */
  onEvent?: (text: string) => void;
  /** HTTP verb; POST unless said. GET opens a listening stream, DELETE ends a session. */
  verb?: "POST" | "GET" | "DELETE";
}

export interface Sent {
  /** HTTP only. */
  readonly status?: number;
  readonly headers?: IncomingHttpHeaders;
  /**
   * When the response (HTTP) has been read to its end; resolved at once on other transports. Rejects when it was cut short,
   * over the cap or undecodable, or when the signal aborted it.
   */
  readonly done: Promise<void>;
  /** HTTP, after `done`: the text of an answer that was no event stream, whatever its status and type. */
  readonly body?: string;
  /** HTTP event streams: the last event id seen, for `Last-Event-ID`, and the delay the server asked for. */
  readonly lastEventId?: string;
  readonly retryMs?: number;
}

export type ResolvedLimits = Readonly<Required<TransportLimits>>;

/** INVARIANT: a peer that lets this many times `maxBufferedBytes` pile up is cut off. */
export const CUT_OFF_FACTOR = 4;

/** What an exchange under way costs besides its message: sockets, headers, closures. It bounds their number, too. */
export const IN_FLIGHT_BYTES = 16 * 1024;

const MAY_BE_ZERO: ReadonlySet<string> = new Set(["idleMs"]);

export function resolveLimits(
  given: Partial<TransportLimits> = {},
  defaults: Partial<TransportLimits> = {},
): ResolvedLimits {
  const limits = { ...DEFAULT_LIMITS, ...defaults, ...withoutUndefined(given) } as Required<TransportLimits>;
  for (const [name, value] of Object.entries(limits)) {
    const least = MAY_BE_ZERO.has(name) ? 0 : 1;
    if (!Number.isSafeInteger(value) || value < least) {
      throw new RangeError(`limit ${name} must be a whole number of at least ${least}, not ${String(value)}`);
    }
  }
  return limits;
}

function withoutUndefined(given: Partial<TransportLimits>): Partial<TransportLimits> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

export type TransportErrorKind =
  | "too-large"
  | "not-utf8"
  | "too-many"
  | "closed"
  | "slow-peer"
  | "timeout"
  | "unreachable"
  | "protocol";

const FAULT_TYPE: Record<TransportErrorKind, ErrorType> = {
  "too-large": "TooLarge",
  "not-utf8": "ParseError",
  "too-many": "TooMany",
  closed: "IoError",
  "slow-peer": "IoError",
  timeout: "IoError",
  unreachable: "IoError",
  protocol: "IoError",
};

export class TransportError extends Fault {
  readonly kind: TransportErrorKind;
  constructor(kind: TransportErrorKind, reason: string, cause?: unknown) {
    super(FAULT_TYPE[kind], reason, cause === undefined ? {} : { cause });
    this.name = "TransportError";
    this.kind = kind;
  }
}

export function tooLargeToSend(bytes: number, maxBytes: number): TransportError {
  return new TransportError(
    "too-large",
    `a text of ${bytes} bytes is over the cap of ${maxBytes} bytes and was not sent; raise maxMessageBytes or send less`,
  );
}
