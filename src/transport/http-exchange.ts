// One HTTP request and its answer. The hot path: one object an exchange, shared listeners, one write for a plain
// answer; an event stream only when somebody asks for one.

import { IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ByteStore, decodeUtf8 } from "./bytes.js";
import type { Guest } from "./connections.js";
import { tooLargeToSend } from "./error.js";
import { type Budget, CUT_OFF_FACTOR, type ResolvedLimits } from "./limits.js";
import { formatEvent, formatRetry, HEARTBEAT } from "./sse.js";
import type { Handler, HttpRequest, Inbound, Malformed, Peer, Reply, ReplyHead } from "./types.js";

/** A request that knows its exchange, so that its listeners need not be made anew each time. */
export class ServedRequest extends IncomingMessage {
  exchange: HttpExchange | undefined = undefined;
}

/** One connection: who it is, what is under way on it, and whether it still moves. */
export class HttpConnection implements Guest {
  readonly socket: Socket;
  readonly address: string;
  readonly open: HttpExchange[] = [];
  recent = false;
  #lastWaiting = 0;
  #movedAt = 0;

  constructor(socket: Socket) {
    this.socket = socket;
    this.address = socket.remoteAddress ?? "unix";
  }

  get busy(): boolean {
    return this.open.length > 0 || this.socket.writableLength > 0;
  }

  evict(): void {
    this.socket.destroy();
  }

  /** Cuts off a peer that takes nothing of what waits for it. (`keepAliveTimeout` closes the idle ones.) */
  sweep(now: number, idleMs: number): void {
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
export interface HttpHouse {
  readonly handler: Handler;
  readonly limits: ResolvedLimits;
  readonly budget: Budget;
  readonly streams: Set<HttpExchange>;
  /** No new exchange is expected on a connection after this one. */
  closing: boolean;
}

const JSON_TYPE = "application/json";
const STREAM_HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};
const ALREADY: Promise<void> = Promise.resolve();

export class HttpExchange implements Reply, Inbound, HttpRequest {
  text = "";
  ended = false;
  readonly peer: Peer;
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly #house: HttpHouse;
  readonly #connection: HttpConnection;
  readonly #res: ServerResponse;
  readonly #isMessage: boolean;
  readonly #isMcpPath: boolean;
  /** CORS headers, where the origin may read the answer. */
  readonly #shared: Readonly<Record<string, string>> | undefined;
  #chunk: Buffer | undefined = undefined;
  #store: ByteStore | undefined = undefined;
  #okStatus = 200;
  #overLong = false;
  #streaming = false;
  #aborted = false;
  #abortListeners: (() => void)[] | undefined = undefined;
  #waiters: (() => void)[] | undefined = undefined;
  /** Part of the event stream has gone out. Made with the stream: a plain answer needs none. */
  #taken: (() => void) | undefined = undefined;

  constructor(
    house: HttpHouse,
    connection: HttpConnection,
    req: ServedRequest,
    res: ServerResponse,
    target: HttpTarget,
    shared: Readonly<Record<string, string>> | undefined,
  ) {
    this.#house = house;
    this.#connection = connection;
    this.#res = res;
    this.#shared = shared;
    this.method = req.method ?? "";
    this.#isMcpPath = target.isMcpPath;
    this.#isMessage = target.isMcpPath && this.method === "POST";
    this.path = target.path;
    this.query = target.query;
    const { method, path } = this;
    this.peer = { transport: "http", address: connection.address, headers: req.headers, method, path };
    connection.open.push(this);
  }

  get reply(): Reply {
    return this;
  }

  get body(): string {
    return this.text;
  }

  // Receiving.

  /** Called for every piece of the body. */
  take(chunk: Buffer): void {
    // What follows an over-long start is read and dropped, so that the peer gets to see the answer.
    if (this.#overLong || this.ended) return;
    const { maxMessageBytes } = this.#house.limits;
    if (this.#store === undefined) {
      if (chunk.length > maxMessageBytes) this.overLong();
      else if (this.#chunk === undefined) this.#chunk = chunk;
      else this.#gather(this.#chunk, chunk);
    } else if (this.#store.length + chunk.length > maxMessageBytes) {
      this.overLong();
    } else if (!this.#store.append(chunk)) {
      this.#tooBusy();
    }
  }

  /** The body is over the cap, by what has come or by what was announced. */
  overLong(): void {
    this.#giveUp(413, `the body is over the cap of ${this.#house.limits.maxMessageBytes} bytes`);
  }

  /** The whole body is here. */
  complete(): void {
    if (this.#overLong || this.ended) return;
    const bytes = this.#store?.take() ?? this.#chunk;
    this.#chunk = undefined;
    if (bytes !== undefined) {
      const text = decodeUtf8(bytes);
      if (text === undefined) {
        this.#okStatus = 400;
        this.#malformed({ kind: "not-utf8", message: "the body is not valid UTF-8" });
        return;
      }
      this.text = text;
    }
    try {
      if (this.#isMessage) this.#house.handler.message(this);
      else if (this.#house.handler.http?.(this) !== true && !this.ended) this.#nobodyHome();
    } catch (error) {
      this.#broken(error);
    }
  }

  #gather(first: Buffer, second: Buffer): void {
    this.#chunk = undefined;
    this.#store = new ByteStore(this.#house.budget);
    if (!this.#store.append(first)) this.#tooBusy();
    else this.take(second);
  }

  #tooBusy(): void {
    this.#giveUp(503, "too many unfinished messages at once; send this one again later");
  }

  #giveUp(status: number, message: string): void {
    this.#overLong = true;
    this.#chunk = undefined;
    this.#store?.clear();
    this.#okStatus = status;
    this.#malformed({ kind: "too-large", message });
  }

  #malformed(problem: Malformed): void {
    const { handler } = this.#house;
    if (handler.malformed === undefined) {
      this.end(problem.message, { headers: { "content-type": "text/plain; charset=utf-8" } });
      return;
    }
    try {
      handler.malformed(problem, this.peer, this);
    } catch (error) {
      this.#broken(error);
    }
  }

  /** A handler that throws breaks its own invariant; that costs this exchange its answer, nobody else anything. */
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
    const { maxMessageBytes, maxBufferedBytes } = this.#house.limits;
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
    return this.#res.writableLength <= maxBufferedBytes;
  }

  drained(): Promise<void> {
    if (this.ended || this.#res.destroyed || this.#res.writableLength <= this.#house.limits.maxBufferedBytes) {
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
    this.#house.streams.add(this);
    const res = this.#res;
    this.#taken = () => {
      if (res.writableLength <= this.#house.limits.maxBufferedBytes / 2) this.#caughtUp();
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
    const { maxMessageBytes } = this.#house.limits;
    if (bytes > maxMessageBytes) throw tooLargeToSend(bytes, maxMessageBytes);
    const status = head?.status ?? (text === undefined && this.#okStatus === 200 ? 202 : this.#okStatus);
    // Before the exchange is settled: a header that cannot be sent throws, and then something else can be answered.
    if (!this.#res.destroyed) {
      this.#res.writeHead(status, this.#answerHeaders(text !== undefined, bytes, status, head?.headers));
    }
    this.#settle();
    if (!this.#res.destroyed) this.#res.end(text);
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
    this.#house.streams.delete(this);
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
    const plain = given === undefined && this.#shared === undefined && !this.#house.closing;
    if (plain && hasBody) return { "content-type": JSON_TYPE, "content-length": bytes };
    const headers: Record<string, string | number> = { ...this.#shared };
    if (hasBody) headers["content-type"] = JSON_TYPE;
    if (status !== 204 && status !== 304) headers["content-length"] = bytes;
    if (this.#house.closing) headers.connection = "close";
    for (const name in given) headers[name.toLowerCase()] = given[name] as string;
    return headers;
  }

  #settle(): void {
    this.ended = true;
    this.#abortListeners = undefined;
    const { open } = this.#connection;
    if (open.length === 1) open.length = 0;
    else open.splice(open.indexOf(this), 1);
    if (this.#streaming) this.#house.streams.delete(this);
    this.#caughtUp();
  }

  #caughtUp(): void {
    const waiters = this.#waiters;
    if (waiters === undefined) return;
    this.#waiters = undefined;
    for (const resolve of waiters) resolve();
  }
}
