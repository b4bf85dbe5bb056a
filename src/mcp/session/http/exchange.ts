// One HTTP request and its answer as it comes in: one JSON text, or an event stream of several.

import { isUtf8 } from "node:buffer";
import { ByteBudget, MODERN, readWithin, type TimeShare } from "../../index.js";
import { ByteStore, SseReader } from "../../transports/index.js";
import type { SessionCall, SessionContext } from "../types.js";
import { type AnswerHeaders, type AnswerSink, type AnswerSource, type Dial, HttpPool } from "./http1.js";

/** What an HTTP connection sends its requests through. */
export interface HttpPort {
  send(line: HttpRequestLine, sink: ExchangeSink): Exchange;
  close(): Promise<void>;
}

export interface HttpRequestLine {
  readonly method: string;
  /** Path and query; the address's own unless given. */
  readonly path?: string;
  readonly headers: string[];
  readonly body?: string;
}

/** One request and what is known of its answer. */
export interface Exchange {
  readonly status: number;
  readonly headers: AnswerHeaders;
  /** Something of it may have reached the server. */
  readonly started: boolean;
  /** An answer that was no event stream; undefined until it is whole. */
  readonly body: string | undefined;
  readonly isStream: boolean;
  readonly lastEventId: string | undefined;
  readonly retryMs: number | undefined;
  /** Closes the stream, which in 2026-07-28 is how a server learns that the answer is not awaited. */
  abort(): void;
}

/** INVARIANT: `done` is called exactly once, unless the exchange was aborted by us. */
export interface ExchangeSink {
  /** The head is there. */
  head?(exchange: Exchange): void;
  /** A message of an event stream. */
  message(text: string, exchange: Exchange): void;
  /** The whole answer as it came, of whatever type: with this, nothing in it is read as text or events. */
  bytes?(bytes: Buffer): void;
  /** An event of another type than `message`. */
  other?(type: string, data: string): void;
  done(exchange: Exchange, error: Error | undefined): void;
}

/** An answer in one piece up to this size is read at its end, in one go. */
const SMALL_BYTES = 64 * 1024;

class HttpExchange implements Exchange, AnswerSink {
  status = 0;
  headers: AnswerHeaders = {};
  started = false;
  body: string | undefined = undefined;
  /** Stops the wait at the connection. */
  giveUp: (() => void) | undefined = undefined;
  readonly #sink: ExchangeSink;
  readonly #maxBytes: number;
  #source: AnswerSource | undefined = undefined;
  #reader: SseReader | undefined = undefined;
  /** An answer in one piece is not copied. */
  #first: Buffer | undefined = undefined;
  readonly #budget: ByteBudget | undefined;
  readonly #share: TimeShare | undefined;
  #store: ByteStore | undefined = undefined;
  #length = 0;
  /** Bytes whose reading was not counted yet. */
  #uncounted = 0;
  #over = false;

  /** Unfinished answers are charged to `budget`, which the exchanges with one server share. */
  constructor(sink: ExchangeSink, maxBytes: number, budget?: ByteBudget, share?: TimeShare) {
    this.#sink = sink;
    this.#share = share;
    this.#budget = budget;
    this.#maxBytes = maxBytes;
  }

  get isStream(): boolean {
    return this.#reader !== undefined;
  }
  get lastEventId(): string | undefined {
    return this.#reader?.lastEventId;
  }
  get retryMs(): number | undefined {
    return this.#reader?.retryMs;
  }

  abort(): void {
    this.#stop();
    this.giveUp?.();
  }

  #stop(): void {
    this.#over = true;
    this.#store?.clear();
    this.#reader?.stop();
  }

  sent(source: AnswerSource): void {
    this.#source = source;
    this.started = true;
  }

  head(status: number, headers: AnswerHeaders): void {
    if (this.#over) return;
    this.status = status;
    this.headers = headers;
    const encoding = headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") {
      this.#fail(new Error(`it answered in ${encoding}, which was not asked for`));
      return;
    }
    if (this.#sink.bytes === undefined && isType(headers, "text/event-stream")) {
      const events = {
        event: (data: string) => {
          if (!this.#over) this.#sink.message(data, this);
        },
        other: (type: string, data: string) => this.#sink.other?.(type, data),
      };
      this.#reader = new SseReader(this.#maxBytes, events, this.#budget);
    }
    this.#sink.head?.(this);
  }

  data(bytes: Buffer): void {
    if (this.#over) return;
    if (this.#reader === undefined && this.#length === 0 && bytes.length <= SMALL_BYTES) {
      this.#uncounted = bytes.length;
      this.#take(bytes);
    } else readWithin(this.#share, this.#source as AnswerSource, bytes.length, () => this.#take(bytes));
  }

  #take(chunk: Buffer): void {
    if (this.#reader === undefined) {
      this.#length += chunk.length;
      if (this.#length > this.#maxBytes) this.#fail(new OverLimit(this.#maxBytes));
      else if (this.#length === chunk.length) this.#first = chunk;
      else if (!this.#gather(chunk)) this.#fail(new Error("too many of its answers are unfinished"));
      return;
    }
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  ended(): void {
    if (!this.#over) readWithin(this.#share, this.#source as AnswerSource, this.#uncounted, () => this.#end());
  }

  #end(): void {
    this.#over = true;
    this.#reader?.stop();
    if (this.#reader === undefined) {
      const bytes = this.#first ?? this.#store?.take() ?? NO_BYTES;
      if (this.#sink.bytes !== undefined) {
        this.#sink.bytes(bytes);
        return this.#sink.done(this, undefined);
      }
      if (!isUtf8(bytes)) return this.#sink.done(this, new Error("it answered something that is not valid UTF-8"));
      this.body = bytes.toString("utf8");
    }
    this.#sink.done(this, undefined);
  }

  failed(error: Error): void {
    if (this.#over) return;
    this.#stop();
    this.#sink.done(this, error);
  }

  /** Copies the pieces: keeping them would cost a hundred times what a server sends byte by byte. */
  #gather(chunk: Buffer): boolean {
    const first = this.#first;
    this.#first = undefined;
    this.#store ??= new ByteStore(this.#budget);
    return (first === undefined || this.#store.append(first)) && this.#store.append(chunk);
  }

  #fail(error: Error): void {
    this.abort();
    this.#first = undefined;
    this.#sink.done(this, error);
  }
}

const NO_BYTES = Buffer.alloc(0);

export class OverLimit extends Error {
  constructor(maxBytes: number) {
    super(`it answered more than the limit of ${maxBytes} bytes`);
  }
}

/** True when the answer has this media type, whatever its parameters. */
export function isType(headers: AnswerHeaders, type: string): boolean {
  const given = headers["content-type"];
  if (given === undefined) return false;
  return given === type || (given.split(";", 1)[0] as string).trim().toLowerCase() === type;
}

/** A server that does not even take a notification keeps one connection busy for so long. */
const FORGET_MS = 30_000;

/** Answers of the largest size that may be unfinished at once; smaller ones may be more. */
const MAX_UNFINISHED = 8;

export class HttpClient implements HttpPort {
  readonly url: URL;
  readonly #path: string;
  readonly #maxBytes: number;
  /** All answers of the server that are unfinished. */
  readonly #unfinished: ByteBudget;
  readonly #share: TimeShare | undefined;
  readonly #pool: HttpPool;

  /** `onDisconnected` when a connection was broken, or the last one has ended as both sides expect it to. */
  constructor(
    url: URL,
    dial: Dial,
    { limits, budget, share }: SessionContext,
    onDisconnected: (isByAgreement: boolean) => void = () => {},
  ) {
    this.url = url;
    this.#path = url.pathname + url.search;
    this.#pool = new HttpPool(url, dial, limits.connections, onDisconnected);
    this.#maxBytes = limits.maxMessageBytes;
    this.#share = share;
    this.#unfinished = new ByteBudget(MAX_UNFINISHED * limits.maxMessageBytes, budget);
  }

  send(line: HttpRequestLine, sink: ExchangeSink): HttpExchange {
    const exchange = new HttpExchange(sink, this.#maxBytes, this.#unfinished, this.#share);
    const { method, headers, body } = line;
    const path = line.path ?? this.#path;
    exchange.giveUp = this.#pool.send(method, path, headers, body, exchange);
    return exchange;
  }

  async close(): Promise<void> {
    this.#pool.close();
  }
}

/** Whatever the answer says, it is thrown away; resolves with what is known of it. Never rejects, never lasts. */
export function sendAndForget(port: HttpPort, line: HttpRequestLine): Promise<Exchange> {
  return new Promise((resolve) => {
    const enough = (exchange: Exchange): void => {
      clearTimeout(timer);
      exchange.abort();
      resolve(exchange);
    };
    const sent = port.send(line, {
      head: (exchange) => {
        // A stream could go on for ever, and there is nothing in it that anybody waits for.
        if (exchange.isStream) enough(exchange);
      },
      message: () => {},
      done: (exchange) => {
        clearTimeout(timer);
        resolve(exchange);
      },
    });
    const timer = setTimeout(() => enough(sent), FORGET_MS);
    timer.unref();
  });
}

const PLAIN = /^[\x20-\x7e]+$/;
const ENCODED = /^=\?base64\?.*\?=$/;

/** A value as it may stand on the wire: itself when it is plain, otherwise its UTF-8 bytes in base64. */
export function headerValue(value: string): string {
  if (PLAIN.test(value) && value === value.trim() && !ENCODED.test(value)) return value;
  return `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/** What a call may not say in a header of its own: it is ours, HTTP's, or the credential's. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  "accept",
  "authorization",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "cookie",
  "dpop",
  "host",
  "last-event-id",
  "mcp-method",
  "mcp-name",
  "mcp-protocol-version",
  "mcp-session-id",
  "origin",
  "proxy-authorization",
  "te",
  "transfer-encoding",
  "upgrade",
]);

export function addHeaders(list: string[], headers: Readonly<Record<string, string>> | undefined): void {
  for (const name in headers) list.push(name, headers[name] as string);
}

export function addCallHeaders(list: string[], call: SessionCall, isModern: boolean): void {
  if (isModern) {
    list.push("mcp-protocol-version", MODERN.name, "mcp-method", call.method);
    if (call.name !== undefined) list.push("mcp-name", headerValue(call.name));
  }
  for (const name in call.headers) {
    if (!RESERVED_HEADERS.has(name.toLowerCase())) list.push(name, headerValue(call.headers[name] as string));
  }
}
