// One HTTP request and its answer as it comes in: one JSON text, or an event stream of several.

import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import { type ByteBudget, type Pausable, readWithin, type TimeShare } from "../../index.js";
import { ByteStore, SseReader } from "../../transports/index.js";

/** What an HTTP connection sends its requests through. */
export interface HttpPort {
  send(line: HttpRequestLine, sink: ExchangeSink): Exchange;
  close(): Promise<void>;
}

export interface HttpRequestLine {
  readonly method: "POST" | "GET" | "DELETE";
  /** Path and query; the address's own unless given. */
  readonly path?: string;
  readonly headers: string[];
  readonly body?: string;
}

/** One request and what is known of its answer. */
export interface Exchange {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Something of it may have reached the server. */
  readonly started: boolean;
  /** An answer that was no event stream; undefined until it is whole. */
  readonly body: string | undefined;
  readonly isStream: boolean;
  readonly lastEventId: string | undefined;
  readonly retryMs: number | undefined;
  /** Closes the stream, which in 2026-07-28 is how a server is told that nobody waits. */
  abort(): void;
}

/** INVARIANT: `done` is called exactly once, unless the exchange was aborted by us. */
export interface ExchangeSink {
  /** The head is there. */
  head?(exchange: Exchange): void;
  /** A message of an event stream. */
  message(text: string, exchange: Exchange): void;
  /** An event of another type than `message`. */
  other?(type: string, data: string): void;
  done(exchange: Exchange, error: Error | undefined): void;
}

/** A response that is complete: there is nothing left to be paused. */
const NOTHING: Pausable = { pause: () => {}, resume: () => {} };

export class HttpExchange implements Exchange, Dispatcher.DispatchHandler {
  status = 0;
  headers: IncomingHttpHeaders = {};
  started = false;
  body: string | undefined;
  readonly #sink: ExchangeSink;
  readonly #maxBytes: number;
  #controller: Dispatcher.DispatchController | undefined;
  #reader: SseReader | undefined;
  /** An answer in one piece is not copied. */
  #first: Buffer | undefined;
  readonly #budget: ByteBudget | undefined;
  readonly #share: TimeShare | undefined;
  readonly #store: ByteStore;
  #length = 0;
  #over = false;

  /** Unfinished answers are charged to `budget`, which the exchanges with one server share. */
  constructor(sink: ExchangeSink, maxBytes: number, budget?: ByteBudget, share?: TimeShare) {
    this.#sink = sink;
    this.#share = share;
    this.#budget = budget;
    this.#store = new ByteStore(budget);
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
    this.#over = true;
    this.#store.clear();
    this.#reader?.stop();
    this.#controller?.abort(new Error("nobody waits for this answer"));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new Error("nobody waits for this answer"));
    else this.started = true;
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200 || this.#over) return;
    this.status = status;
    this.headers = headers;
    const encoding = headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") {
      this.#fail(new Error(`it answered in ${encoding}, which was not asked for`));
      return;
    }
    if (isType(headers, "text/event-stream")) {
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

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    readWithin(this.#share, controller, chunk.length, () => this.#take(chunk));
  }

  #take(chunk: Buffer): void {
    if (this.#over) return;
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

  onResponseEnd(): void {
    if (!this.#over) readWithin(this.#share, NOTHING, 0, () => this.#end());
  }

  #end(): void {
    this.#over = true;
    this.#reader?.stop();
    if (this.#reader === undefined) {
      const bytes = this.#first ?? this.#store.take();
      if (!isUtf8(bytes)) return this.#sink.done(this, new Error("it answered something that is not valid UTF-8"));
      this.body = bytes.toString("utf8");
    }
    this.#sink.done(this, undefined);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#store.clear();
    this.#reader?.stop();
    this.#sink.done(this, error);
  }

  /** Copies the pieces: keeping them would cost a hundred times what a server sends byte by byte. */
  #gather(chunk: Buffer): boolean {
    const first = this.#first;
    this.#first = undefined;
    return (first === undefined || this.#store.append(first)) && this.#store.append(chunk);
  }

  #fail(error: Error): void {
    this.abort();
    this.#first = undefined;
    this.#sink.done(this, error);
  }
}

export class OverLimit extends Error {
  constructor(maxBytes: number) {
    super(`it answered more than the limit of ${maxBytes} bytes`);
  }
}

/** True when the answer has this media type, whatever its parameters. */
export function isType(headers: IncomingHttpHeaders, type: string): boolean {
  const given = headers["content-type"];
  if (given === undefined) return false;
  return given === type || (given.split(";", 1)[0] as string).trim().toLowerCase() === type;
}
