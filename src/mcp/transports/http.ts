// HTTP, both sides.

import type { IncomingHttpHeaders } from "node:http";
import type { LookupFunction } from "node:net";
import type { ConnectionOptions } from "node:tls";
import type { Dispatcher, Pool } from "undici";
import { ByteStore, decodeUtf8 } from "./bytes.js";
import { NOT_STARTED } from "./outbox.js";
import { loadPool } from "./pool.js";
import { SseReader } from "./sse.js";
import {
  type ClientEvents,
  type ClientTransport,
  type ResolvedLimits,
  resolveLimits,
  type SendOptions,
  type Sent,
  TransportError,
  type TransportErrorKind,
  type TransportLimits,
  tooLargeToSend,
} from "./types.js";

export * from "./http-server.js";

export interface HttpClientOptions {
  /** The MCP endpoint: `http://127.0.0.1:7420/mcp`. */
  url: string | URL;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>>;
  limits?: Partial<TransportLimits>;
  /** Connections kept at most; each open event stream holds one. 64 unless said. */
  connections?: number;
  /** Requests at most, those waiting for a connection included. 1024 unless said. */
  maxOpenRequests?: number;
  /** 10 s unless said. */
  connectTimeoutMs?: number;
  /** From the request to the head of the answer; 5 min unless said. A caller with less patience has the signal. */
  answerMs?: number;
  /** A Unix socket to connect to; the url still says host and path. */
  socketPath?: string;
  /** Resolves the host's name, where the caller wants a say in that. */
  lookup?: LookupFunction;
  tls?: ConnectionOptions;
  credentials?: HttpCredentials;
}

/** Where the headers of a request come from that say who we are. */
export interface HttpCredentials {
  /** For one request of this method. */
  headers(method: string): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /** The server said 401 or 403. True when the request should be made again, with new headers. */
  refused(refusal: HttpRefusal): Promise<boolean>;
}

export interface HttpRefusal {
  readonly status: number;
  readonly wwwAuthenticate: string | undefined;
  /** The `authorization` that did not do. */
  readonly sent: string | undefined;
  /** `DPoP-Nonce`, for new proofs. */
  readonly dpopNonce: string | undefined;
}

/** Once for a token, once for more scope. */
const MAX_ATTEMPTS = 3;

const ACCEPT = { POST: "application/json, text/event-stream", GET: "text/event-stream", DELETE: "application/json" };

export function httpClient(options: HttpClientOptions): ClientTransport {
  return new HttpClient(options);
}

class HttpClient implements ClientTransport {
  readonly kind = "http";
  readonly #options: HttpClientOptions;
  readonly #url: URL;
  readonly #limits: ResolvedLimits;
  #pool: Pool | undefined;
  #events: ClientEvents | undefined;
  #open = 0;

  constructor(options: HttpClientOptions) {
    this.#options = options;
    this.#url = new URL(options.url);
    this.#limits = resolveLimits(options.limits);
    if (this.#url.protocol !== "http:" && this.#url.protocol !== "https:") {
      throw new TypeError(`${this.#url.href} is not an http or https address`);
    }
  }

  async start(events: ClientEvents): Promise<void> {
    const UndiciPool = loadPool();
    const { connections = 64, connectTimeoutMs = 10_000, answerMs = 300_000, socketPath, lookup, tls } = this.#options;
    this.#pool = new UndiciPool(this.#url.origin, {
      connections,
      pipelining: 1,
      headersTimeout: answerMs,
      // A quiet event stream is not a failure; a plain body has a timer of its own.
      bodyTimeout: 0,
      connectTimeout: connectTimeoutMs,
      ...(socketPath === undefined ? {} : { socketPath }),
      connect: { keepAlive: true, keepAliveInitialDelay: 30_000, ...tls, ...(lookup === undefined ? {} : { lookup }) },
    });
    this.#events = events;
  }

  async send(text: string, options: SendOptions = {}): Promise<Sent> {
    const { credentials } = this.#options;
    const own = this.#events;
    const sink = own && options.onEvent ? { ...own, message: options.onEvent } : own;
    if (credentials === undefined || sink === undefined) return this.#once(text, options, sink);
    for (let attempt = 1; ; attempt++) {
      const identity = await credentials.headers(options.verb ?? "POST");
      // A rejection is not passed on before it is clear that it is the last answer.
      const held: [string, string | undefined][] = [];
      let answer: HttpAnswer | undefined;
      const events: ClientEvents = {
        ...sink,
        message: (message: string, id?: string): void => {
          if (answer === undefined || isRefusal(answer.status)) held.push([message, id]);
          else sink.message(message, id);
        },
      };
      answer = await this.#once(text, { ...options, headers: { ...identity, ...options.headers } }, events);
      const again =
        isRefusal(answer.status) && attempt < MAX_ATTEMPTS && (await this.#renewed(answer, credentials, identity));
      if (again) continue;
      if (isRefusal(answer.status)) await answer.done.catch(() => {});
      for (const [message, id] of held) sink.message(message, id);
      return answer;
    }
  }

  async #renewed(answer: HttpAnswer, credentials: HttpCredentials, own: Readonly<Record<string, string>>) {
    const { "www-authenticate": said, "dpop-nonce": nonce } = answer.headers;
    return credentials.refused({
      status: answer.status,
      wwwAuthenticate: typeof said === "string" ? said : undefined,
      sent: own.authorization,
      dpopNonce: typeof nonce === "string" ? nonce : undefined,
    });
  }

  async #once(text: string, options: SendOptions, events: ClientEvents | undefined): Promise<HttpAnswer> {
    if (this.#pool?.destroyed) throw new TransportError("closed", "the transport is closed; make a new one");
    if (this.#pool === undefined || events === undefined) throw new TransportError("closed", NOT_STARTED);
    options.signal?.throwIfAborted();
    const { maxOpenRequests = 1024 } = this.#options;
    if (this.#open >= maxOpenRequests) {
      throw new TransportError("too-many", `${maxOpenRequests} requests to ${this.#url.origin} are open already`);
    }
    const request = this.#request(text, options);
    const answer = new HttpAnswer(this.#url, events, this.#limits, options, () => this.#open--);
    this.#open++;
    this.#pool.dispatch(request, answer);
    await answer.head;
    return answer;
  }

  async close(): Promise<void> {
    const events = this.#events;
    this.#events = undefined;
    await this.#pool?.destroy(new TransportError("closed", "the transport was closed"));
    events?.closed();
  }

  #request(text: string, options: SendOptions): Dispatcher.DispatchOptions {
    const method = options.verb ?? "POST";
    const headers: IncomingHttpHeaders = { accept: ACCEPT[method] };
    lowerCaseInto(headers, this.#options.headers);
    lowerCaseInto(headers, options.headers);
    const path = this.#url.pathname + this.#url.search;
    if (method !== "POST") return { method, path, headers };
    const body = Buffer.from(text);
    if (body.length > this.#limits.maxMessageBytes) throw tooLargeToSend(body.length, this.#limits.maxMessageBytes);
    headers["content-type"] ??= "application/json";
    return { method, path, headers, body };
  }
}

function lowerCaseInto(headers: IncomingHttpHeaders, given: Readonly<Record<string, string>> | undefined): void {
  for (const name in given) headers[name.toLowerCase()] = given[name];
}

function isRefusal(status: number): boolean {
  return status === 401 || status === 403;
}

const ERROR_KIND: Readonly<Record<string, TransportErrorKind>> = {
  UND_ERR_CONNECT_TIMEOUT: "timeout",
  UND_ERR_HEADERS_TIMEOUT: "timeout",
  UND_ERR_SOCKET: "closed",
  ECONNRESET: "closed",
  EPIPE: "closed",
  ECONNREFUSED: "unreachable",
  ENOTFOUND: "unreachable",
  EHOSTUNREACH: "unreachable",
  ENETUNREACH: "unreachable",
  ENOENT: "unreachable",
  EAI_AGAIN: "unreachable",
};

class HttpAnswer implements Sent, Dispatcher.DispatchHandler {
  status = 0;
  headers: IncomingHttpHeaders = {};
  body: string | undefined;
  /** When status and headers are there. */
  readonly head: Promise<void>;
  readonly done: Promise<void>;
  readonly #url: URL;
  readonly #events: ClientEvents;
  readonly #limits: ResolvedLimits;
  readonly #signal: AbortSignal | undefined;
  /** A plain body is a message like any other, unless the sender reads it from here. */
  readonly #isBodyMessage: boolean;
  readonly #finished: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #reader: SseReader | undefined;
  #store = new ByteStore();
  #bodyTimer: NodeJS.Timeout | undefined;
  #over = false;
  #resolveHead!: () => void;
  #rejectHead!: (error: unknown) => void;
  #resolveDone!: () => void;
  #rejectDone!: (error: unknown) => void;

  constructor(
    url: URL,
    events: ClientEvents,
    limits: ResolvedLimits,
    { signal, onEvent }: SendOptions,
    finished: () => void,
  ) {
    this.#url = url;
    this.#events = events;
    this.#limits = limits;
    this.#signal = signal;
    this.#isBodyMessage = onEvent === undefined;
    this.#finished = finished;
    this.head = new Promise((resolve, reject) => {
      this.#resolveHead = resolve;
      this.#rejectHead = reject;
    });
    this.done = new Promise((resolve, reject) => {
      this.#resolveDone = resolve;
      this.#rejectDone = reject;
    });
    // Who does not look at `done` must not bring the process down.
    this.done.catch(() => {});
    signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  get lastEventId(): string | undefined {
    return this.#reader?.lastEventId;
  }

  get retryMs(): number | undefined {
    return this.#reader?.retryMs;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new TransportError("closed", "the request was given up before it was sent"));
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    this.status = status;
    this.headers = headers;
    const encoding = headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") {
      controller.abort(
        new TransportError("protocol", `${this.#url.href} answered in ${encoding}, which was not asked for`),
      );
      return;
    }
    if (isType(headers, "text/event-stream")) {
      this.#reader = new SseReader(this.#limits.maxMessageBytes, {
        event: (data, id) => this.#events.message(data, id),
      });
    } else {
      const { bodyMs } = this.#limits;
      const late = () =>
        new TransportError("timeout", `${this.#url.href} did not finish its answer within ${bodyMs} ms`);
      this.#bodyTimer = setTimeout(() => controller.abort(late()), bodyMs);
    }
    this.#resolveHead();
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    if (this.#reader !== undefined) {
      this.#reader.push(chunk);
    } else if (this.#store.length + chunk.length <= this.#limits.maxMessageBytes) {
      this.#store.append(chunk);
    } else {
      const cap = this.#limits.maxMessageBytes;
      controller.abort(new TransportError("too-large", `${this.#url.href} answered more than the cap of ${cap} bytes`));
    }
  }

  onResponseEnd(): void {
    if (this.#over) return;
    if (this.#reader === undefined && this.#store.length > 0) {
      this.body = decodeUtf8(this.#store.take());
      if (this.body === undefined) {
        this.#fail(new TransportError("not-utf8", `${this.#url.href} answered something that is not valid UTF-8`));
        return;
      }
      if (this.#isBodyMessage && isType(this.headers, "application/json")) this.#events.message(this.body);
    }
    this.#finish();
    this.#resolveDone();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (!this.#over) this.#fail(this.#explain(error));
  }

  readonly #onAbort = (): void => {
    const reason: unknown = this.#signal?.reason;
    this.#fail(reason);
    this.#controller?.abort(reason instanceof Error ? reason : new Error(String(reason)));
  };

  #fail(error: unknown): void {
    if (this.#over) return;
    this.#finish();
    this.#rejectHead(error);
    this.#rejectDone(error);
  }

  #finish(): void {
    this.#over = true;
    clearTimeout(this.#bodyTimer);
    this.#store.clear();
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#finished();
  }

  #explain(error: Error & { code?: string }): Error {
    if (error instanceof TransportError || error.code === "UND_ERR_INVALID_ARG") return error;
    const kind = ERROR_KIND[error.code ?? ""] ?? "closed";
    return new TransportError(kind, `${this.#url.href}: ${error.message || error.code}`, error);
  }
}

function isType(headers: IncomingHttpHeaders, type: string): boolean {
  const given = headers["content-type"];
  return given !== undefined && (given.split(";", 1)[0] as string).trim().toLowerCase() === type;
}
