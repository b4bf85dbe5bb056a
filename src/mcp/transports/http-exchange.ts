// One HTTP request and its answer. The hot path: one object an exchange, shared listeners, one write for a plain
// answer; an event stream only on request.

import { IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type ByteBudget, Charge } from "../index.js";
import { ByteStore, decodeUtf8, headOf } from "./bytes.js";
import { ConnectionFlow, type Connections, type Evictable } from "./connections.js";
import { formatEvent, formatRetry, HEARTBEAT } from "./sse.js";
import {
  type Admission,
  CUT_OFF_FACTOR,
  type HttpRequest,
  IN_FLIGHT_BYTES,
  type Inbound,
  type Malformed,
  type Peer,
  type Reply,
  type ReplyHead,
  type ResolvedLimits,
  type TransportHandler,
  tooLargeToSend,
} from "./types.js";

/** A request that knows its exchange, so that its listeners are made once. */
export class ServedRequest extends IncomingMessage {
  exchange: HttpExchange | undefined = undefined;
  /** Bytes of the body that were read and dropped. */
  discarded = 0;
  discardedPieces = 0;

  /**
   * True on a connection that was cut off, which ends the parsing of requests that are read already: one read may hold
   * thousands. On any other connection an upgrade is a plain request, as nothing here is upgraded.
   */
  get upgrade(): boolean {
    return this.socket.destroyed || this.method === "CONNECT";
  }

  set upgrade(_asked: boolean | null) {}
}

/** One connection: who it is, what is under way on it, and whether it still moves. */
export class HttpConnection implements Evictable {
  readonly socket: Socket;
  readonly address: string;
  readonly open: HttpExchange[] = [];
  /** What its latest request is charged to. */
  budget: ByteBudget | undefined = undefined;
  /** Whether it is read. */
  readonly flow: ConnectionFlow;
  #lastWaiting = 0;
  #movedAt = 0;

  constructor(socket: Socket, address: string) {
    this.socket = socket;
    this.address = address;
    this.flow = new ConnectionFlow(socket);
  }

  get busy(): boolean {
    return this.socket.writableLength > 0 || this.open.some((exchange) => exchange.isComplete);
  }

  evict(): void {
    this.socket.destroy();
    // Not only when the socket has closed: what it held is free for others at once.
    for (const exchange of this.open.splice(0)) exchange.abort();
  }

  /** Cuts off a peer that takes nothing of what waits for it. (`keepAliveTimeout` closes the idle ones.) */
  sweep(now: number, { idleMs, minBodyBytesPerSecond }: ResolvedLimits): void {
    if (this.open.some((exchange) => exchange.isSlow(now, minBodyBytesPerSecond))) this.socket.destroy();
    if (idleMs === 0) return;
    const waiting = this.socket.writableLength;
    if (waiting === 0 || waiting !== this.#lastWaiting) {
      this.#lastWaiting = waiting;
      this.#movedAt = now;
    } else if (now - this.#movedAt >= idleMs) {
      this.socket.destroy();
    }
  }
}

export interface HttpTarget {
  readonly path: string;
  readonly query: string;
  readonly isMcpPath: boolean;
}

/** What all exchanges of a server share. */
export interface HttpServerContext {
  readonly handler: TransportHandler;
  readonly limits: ResolvedLimits;
  readonly budget: ByteBudget;
  readonly connections: Connections<HttpConnection>;
  readonly streams: Set<HttpExchange>;
  /** The head of an answer as most are, up to its length. */
  readonly usualHead: string;
  /** No new exchange is expected on a connection after this one. */
  closing: boolean;
}

/** What Node's HTTP server knows of an answer whose head was written. */
type RawResponse = Omit<ServerResponse, "socket"> & {
  readonly socket: Socket | null;
  _header: string | null;
  _headerSent: boolean;
};

let dateAt = 0;
let date = "";

/** The time in the form of HTTP, which has whole seconds. */
function dateNow(): string {
  const second = Math.floor(Date.now() / 1_000);
  if (second !== dateAt) {
    dateAt = second;
    date = new Date(second * 1_000).toUTCString();
  }
  return date;
}

const JSON_TYPE = "application/json";
const STREAM_HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};
const ALREADY: Promise<void> = Promise.resolve();

/** How long a body may take before its rate counts. */
const SLOW_AFTER_MS = 5_000;
/** A body that is of no use any more is read this much at a time, with pauses: reading it all at once would cost others. */
const DISCARD_BYTES = 64 * 1024;
const DISCARD_PAUSE_MS = 10;
const MAX_DISCARD_BYTES = 1024 * 1024;

/** More pieces than this have to be of a reasonable size on average: each costs a callback, however small it is. */
const MAX_SMALL_PIECES = 256;
const SMALL_PIECE_BYTES = 64;

function areTooSmall(pieces: number, bytes: number): boolean {
  return pieces > MAX_SMALL_PIECES && bytes < pieces * SMALL_PIECE_BYTES;
}

/** Drops a piece of a body that is answered already; the connection ends when there is more than `maxBytes` of it. */
export function discard(req: ServedRequest, chunk: Buffer, maxBytes: number): void {
  const before = req.discarded;
  req.discarded += chunk.length;
  req.discardedPieces++;
  if (req.discarded > Math.max(maxBytes, MAX_DISCARD_BYTES) || areTooSmall(req.discardedPieces, req.discarded)) {
    cutOff(req);
  } else if (Math.floor(req.discarded / DISCARD_BYTES) > Math.floor(before / DISCARD_BYTES)) {
    req.pause();
    setTimeout(() => req.resume(), DISCARD_PAUSE_MS).unref();
  }
}

/** Closes the connection at once. Pieces that were read already are no longer delivered. */
function cutOff(req: ServedRequest): void {
  req.removeAllListeners("data");
  ignoreRestOfRead(req.socket);
  req.socket.destroy();
}

/** Where Node's HTTP parser has its listener for pieces of bodies. */
const ON_BODY = 3;

interface Parser {
  [ON_BODY]: unknown;
  /** Called for every parser before another connection can get it. */
  remove(): void;
}

/**
 * The parser reads on to the end of what it was given, which may be ten thousand pieces more. Without a listener it
 * makes no objects of them. INVARIANT: the listener is back before another connection gets the parser.
 */
function ignoreRestOfRead(socket: Socket): void {
  const { parser } = socket as { parser?: Parser };
  const listener = parser?.[ON_BODY];
  if (parser === undefined || typeof listener !== "function" || listener.name !== "parserOnBody") return;
  const { remove } = parser;
  parser[ON_BODY] = null;
  parser.remove = () => {
    parser[ON_BODY] = listener;
    parser.remove = remove;
    remove.call(parser);
  };
}

export class HttpExchange implements Reply, Inbound, HttpRequest {
  text = "";
  ended = false;
  /** The whole body is here. */
  isComplete = false;
  readonly peer: Peer;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly #servedApplication: HttpServerContext;
  readonly #connection: HttpConnection;
  readonly #req: ServedRequest;
  readonly #res: ServerResponse;
  readonly #isMessage: boolean;
  readonly #isMcpPath: boolean;
  /** CORS headers, where the origin may read the answer. */
  readonly #shared: Readonly<Record<string, string>> | undefined;
  #chunk: Buffer | undefined = undefined;
  #store: ByteStore | undefined = undefined;
  #okStatus = 200;
  #overLong = false;
  #admission: Admission = {};
  #maxBytes: number;
  /** The body while it is read, then the message until it is answered. */
  #charge: Charge | undefined = undefined;
  /** What the peer has not taken of the answer. */
  #unsent: Charge | undefined = undefined;
  #received = 0;
  #pieces = 0;
  #begunAt = 0;
  #streaming = false;
  #aborted = false;
  #abortListeners: (() => void)[] | undefined = undefined;
  #waiters: (() => void)[] | undefined = undefined;
  /** Part of the event stream has gone out. Made with the stream: a plain answer needs none. */
  #taken: (() => void) | undefined = undefined;

  constructor(
    servedApplication: HttpServerContext,
    connection: HttpConnection,
    req: ServedRequest,
    res: ServerResponse,
    target: HttpTarget,
    shared: Readonly<Record<string, string>> | undefined,
  ) {
    this.#servedApplication = servedApplication;
    this.#connection = connection;
    this.#req = req;
    this.#res = res;
    this.#maxBytes = servedApplication.limits.maxMessageBytes;
    this.#shared = shared;
    this.method = req.method ?? "";
    this.#isMcpPath = target.isMcpPath;
    this.#isMessage = target.isMcpPath && this.method === "POST";
    this.path = target.path;
    this.query = target.query;
    const { method, path } = this;
    const { headers, httpVersion } = req;
    this.peer = { transport: "http", address: connection.address, headers, method, path, httpVersion };
    connection.open.push(this);
  }

  get reply(): Reply {
    return this;
  }

  get body(): string {
    return this.text;
  }

  // Receiving.

  /** What the head of the request allows; called before anything of the body is read. */
  admit(admission: Admission, announcedBytes: number): void {
    const { maxMessageBytes } = this.#servedApplication.limits;
    this.#admission = admission;
    this.#maxBytes = Math.min(maxMessageBytes, admission.maxBytes ?? maxMessageBytes);
    this.#connection.budget = admission.budget;
    this.#connection.flow.arrived(admission.flow);
    if (!this.#hold(0) && !this.#evictOwnOldest()) return this.#tooBusy();
    if (announcedBytes > this.#maxBytes) this.overLong();
  }

  /** Called for every piece of the body. */
  take(chunk: Buffer): void {
    // What follows an over-long start is read and dropped, so that the peer gets to see the answer.
    if (this.#overLong || this.ended) return discard(this.#req, chunk, this.#servedApplication.limits.maxMessageBytes);
    if (this.#received === 0) this.#begunAt = performance.now();
    this.#received += chunk.length;
    this.#pieces++;
    if (this.#received > this.#maxBytes) this.overLong();
    else if (areTooSmall(this.#pieces, this.#received)) this.#tooManyPieces();
    else if (this.#store !== undefined) {
      if (!this.#store.append(chunk)) this.#tooBusy();
    } else if (this.#chunk !== undefined) this.#gather(this.#chunk, chunk);
    else if (this.#hold(chunk.length)) this.#chunk = chunk;
    else this.#tooBusy();
  }

  /** The body arrives more slowly than it has to. */
  isSlow(now: number, minBytesPerSecond: number): boolean {
    if (this.isComplete || this.ended || this.#received === 0) return false;
    const tookMs = now - this.#begunAt;
    return tookMs > SLOW_AFTER_MS && this.#received < (minBytesPerSecond * tookMs) / 1_000;
  }

  /** The body is over the cap, by what has come or by what was announced. */
  overLong(): void {
    const { refuse } = this.#admission;
    if (refuse === undefined || this.#maxBytes === this.#servedApplication.limits.maxMessageBytes) {
      return this.#giveUp(413, { kind: "too-large", message: `the body is over the cap of ${this.#maxBytes} bytes` });
    }
    this.#drop();
    this.#guarded(() => refuse(this));
  }

  /** The whole body is here. */
  complete(): void {
    if (this.ended && this.#connection.open.length === 0) this.#connection.flow.rest();
    if (this.#overLong || this.ended) return;
    this.isComplete = true;
    if (this.#admission.fault === undefined) this.#servedApplication.connections.completed(this.#connection);
    const bytes = this.#store?.take() ?? this.#chunk;
    this.#chunk = undefined;
    if (!this.#hold(bytes?.length ?? 0)) return this.#tooBusy();
    if (bytes !== undefined) {
      const text = decodeUtf8(bytes);
      if (text === undefined) {
        this.#okStatus = 400;
        this.#malformed({ kind: "not-utf8", message: "the body is not valid UTF-8", head: headOf(bytes) });
        return;
      }
      this.text = text;
    }
    this.#guarded(() => {
      if (this.#isMessage) this.#servedApplication.handler.message(this);
      else if (this.#servedApplication.handler.http?.(this) !== true && !this.ended) this.#nobodyHome();
    });
  }

  #gather(first: Buffer, second: Buffer): void {
    this.#chunk = undefined;
    this.#hold(0);
    this.#store = new ByteStore(this.#admission.budget ?? this.#servedApplication.budget);
    if (!this.#store.append(first) || !this.#store.append(second)) this.#tooBusy();
  }

  /** Until it is answered a message costs its text, what is made of it, and the exchange itself. */
  #hold(bytes: number): boolean {
    const { budget } = this.#admission;
    this.#charge ??= new Charge(budget ?? this.#servedApplication.budget);
    return this.#charge.set(budget === undefined ? bytes : IN_FLIGHT_BYTES + 2 * bytes);
  }

  /** Where a caller's budget is used up, its oldest unfinished request makes room for its newest. */
  #evictOwnOldest(): boolean {
    const { budget } = this.#admission;
    const evicted = this.#servedApplication.connections.evictIncomplete(
      (each) => each !== this.#connection && each.budget === budget && each.open.length > 0,
    );
    return evicted && this.#hold(0);
  }

  #tooBusy(): void {
    const message = "too many unfinished or unanswered messages at once; send this one again later";
    this.#giveUp(429, { kind: "too-many", message });
  }

  #tooManyPieces(): void {
    const message = `the body arrives in pieces of less than ${SMALL_PIECE_BYTES} bytes; send larger chunks`;
    this.#giveUp(400, { kind: "too-many", message });
  }

  #giveUp(status: number, problem: Malformed): void {
    const head = this.#store?.head() ?? headOf(this.#chunk ?? Buffer.alloc(0));
    this.#drop();
    this.#okStatus = status;
    this.#malformed({ ...problem, head });
  }

  #drop(): void {
    this.#overLong = true;
    this.#chunk = undefined;
    this.#store?.clear();
  }

  #guarded(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#broken(error);
    }
  }

  #malformed(problem: Malformed): void {
    const { handler } = this.#servedApplication;
    if (handler.malformed === undefined) {
      this.end(problem.message, { headers: { "content-type": "text/plain; charset=utf-8" } });
      return;
    }
    this.#guarded(() => handler.malformed?.(problem, this.peer, this));
  }

  /** A handler that throws breaks its own invariant; that costs this exchange its answer and others nothing. */
  #broken(error: unknown): void {
    process.emitWarning(error instanceof Error ? error : String(error));
    if (this.#streaming) this.#res.destroy();
    else this.end("internal error", { status: 500, headers: { "content-type": "text/plain; charset=utf-8" } });
  }

  #nobodyHome(): void {
    const type = { "content-type": "text/plain; charset=utf-8" };
    if (this.#isMcpPath) this.end("only POST here", { status: 405, headers: { ...type, allow: "POST" } });
    else this.end("not found", { status: 404, headers: type });
  }

  // Answering.

  send(text: string, eventId?: string): boolean {
    if (this.ended) return false;
    const { maxMessageBytes, maxBufferedBytes } = this.#servedApplication.limits;
    const bytes = Buffer.byteLength(text);
    if (bytes > maxMessageBytes) throw tooLargeToSend(bytes, maxMessageBytes);
    const event = formatEvent(text, eventId);
    if (!this.#streaming) this.open();
    if (this.#res.destroyed) return false;
    if (this.#res.writableLength >= CUT_OFF_FACTOR * maxBufferedBytes) {
      this.#connection.socket.destroy();
      return false;
    }
    this.#res.write(Buffer.from(event), this.#taken);
    if (!this.#countUnsent()) return false;
    return this.#res.writableLength <= maxBufferedBytes;
  }

  drained(): Promise<void> {
    if (
      this.ended ||
      this.#res.destroyed ||
      this.#res.writableLength <= this.#servedApplication.limits.maxBufferedBytes
    ) {
      return ALREADY;
    }
    return new Promise((resolve) => {
      this.#waiters ??= [];
      this.#waiters.push(resolve);
    });
  }

  open(headers?: Readonly<Record<string, string>>, retryMs?: number): void {
    if (this.ended || this.#streaming) return;
    this.#streaming = true;
    this.#servedApplication.streams.add(this);
    const res = this.#res;
    this.#taken = () => {
      this.#countUnsent();
      if (res.writableLength <= this.#servedApplication.limits.maxBufferedBytes / 2) this.#caughtUp();
    };
    // An error here means that the peer has gone, which the connection's own end tells us.
    res.on("error", () => {});
    res.writeHead(200, { ...STREAM_HEADERS, ...this.#shared, ...headers });
    if (retryMs === undefined) res.flushHeaders();
    else res.write(formatRetry(retryMs));
  }

  end(text?: string | Buffer, head?: ReplyHead): void {
    if (this.ended) return;
    if (this.#streaming) {
      if (text !== undefined) this.send(text.toString());
      this.#settle();
      if (!this.#res.destroyed) this.#res.end();
      return;
    }
    const bytes = text === undefined ? 0 : typeof text === "string" ? Buffer.byteLength(text) : text.length;
    const { maxMessageBytes } = this.#servedApplication.limits;
    if (bytes > maxMessageBytes) throw tooLargeToSend(bytes, maxMessageBytes);
    if (head === undefined && typeof text === "string" && this.#isUsual()) return this.#endUsual(text, bytes);
    const status = head?.status ?? (text === undefined && this.#okStatus === 200 ? 202 : this.#okStatus);
    // Before the exchange is settled: a header that cannot be sent throws, and then something else can be answered.
    if (!this.#res.destroyed) {
      this.#res.writeHead(status, this.#answerHeaders(text !== undefined, bytes, status, head?.headers));
    }
    this.#settle();
    if (this.#res.destroyed) return;
    this.#res.end(text);
    this.#countUnsent();
  }

  /** A JSON text for a request whose turn it is, on a connection that is kept. */
  #isUsual(): boolean {
    const { shouldKeepAlive, socket, _header, _headerSent } = this.#res as RawResponse;
    const isNext = _header === null && _headerSent === false && socket !== null && !socket.destroyed;
    return isNext && shouldKeepAlive && this.#okStatus === 200 && this.#isMessage && this.#isPlain;
  }

  /** Without headers that only some answers have. */
  get #isPlain(): boolean {
    return this.#shared === undefined && !this.#servedApplication.closing;
  }

  /** Node would put the same head together for each answer, and send it and the body as two parts. */
  #endUsual(text: string, bytes: number): void {
    const res = this.#res as RawResponse;
    this.#settle();
    const head = `${this.#servedApplication.usualHead}${bytes}\r\nDate: ${dateNow()}\r\n\r\n`;
    res.socket?.write(head + text, "utf8");
    res._header = head;
    res._headerSent = true;
    res.end();
    this.#countUnsent();
  }

  /** What a slow reader leaves waiting is charged; a reader whose caller has no budget left is disconnected. */
  #countUnsent(): boolean {
    const waiting = this.#res.writableFinished || this.#res.destroyed ? 0 : this.#connection.socket.writableLength;
    if (waiting === 0 && this.#unsent === undefined) return true;
    if (this.#unsent === undefined) {
      const unsent = new Charge(this.#admission.budget ?? this.#servedApplication.budget);
      this.#unsent = unsent;
      this.#res.once("close", () => unsent.set(0));
    }
    if (this.#unsent.set(waiting)) return true;
    this.#connection.socket.destroy();
    return false;
  }

  onAbort(listener: () => void): void {
    if (this.#aborted) {
      listener();
    } else if (!this.ended) {
      this.#abortListeners ??= [];
      this.#abortListeners.push(listener);
    }
  }

  /** The connection has closed. */
  abort(): void {
    if (this.ended) return;
    this.ended = true;
    this.#aborted = true;
    this.#store?.clear();
    this.#charge?.set(0);
    this.#servedApplication.streams.delete(this);
    this.#caughtUp();
    const listeners = this.#abortListeners ?? [];
    this.#abortListeners = undefined;
    for (const listener of listeners) listener();
  }

  /** Keeps proxies from closing a quiet stream, and lets the kernel find out about a peer that vanished. */
  heartbeat(): void {
    if (!this.ended && !this.#res.destroyed && this.#res.writableLength === 0) this.#res.write(HEARTBEAT);
  }

  #answerHeaders(
    hasBody: boolean,
    bytes: number,
    status: number,
    given: Readonly<Record<string, string>> | undefined,
  ): Record<string, string | number> {
    if (given === undefined && hasBody && this.#isPlain) return { "content-type": JSON_TYPE, "content-length": bytes };
    const headers: Record<string, string | number> = { ...this.#shared };
    if (hasBody) headers["content-type"] = JSON_TYPE;
    if (status !== 204 && status !== 304) headers["content-length"] = bytes;
    if (this.#servedApplication.closing) headers.connection = "close";
    for (const name in given) headers[name.toLowerCase()] = given[name] as string;
    return headers;
  }

  #settle(): void {
    this.ended = true;
    this.#charge?.set(0);
    this.#abortListeners = undefined;
    const { open } = this.#connection;
    if (open.length === 1) open.length = 0;
    else open.splice(open.indexOf(this), 1);
    // While a body is read and dropped, its connection has to be read.
    if (open.length === 0 && this.#req.complete) this.#connection.flow.rest();
    if (this.#streaming) this.#servedApplication.streams.delete(this);
    this.#caughtUp();
  }

  #caughtUp(): void {
    const waiters = this.#waiters;
    if (waiters === undefined) return;
    this.#waiters = undefined;
    for (const resolve of waiters) resolve();
  }
}
