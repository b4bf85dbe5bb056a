// HTTP, calling side: every send is one request, answered by JSON or by an event stream. Redirects are not followed.

import type { IncomingHttpHeaders } from "node:http";
import type { LookupFunction } from "node:net";
import type { ConnectionOptions } from "node:tls";
import type { Dispatcher, Pool } from "undici";
import { HttpAnswer } from "./http-answer.js";
import { NOT_STARTED } from "./client.js";
import { TransportError, tooLargeToSend } from "./error.js";
import { type ResolvedLimits, resolveLimits } from "./limits.js";
import { loadPool } from "./pool.js";
import type { ClientEvents, ClientTransport, SendOptions, Sent, TransportLimits } from "./types.js";

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
  /** `DPoP-Nonce`, for proofs that are made anew. */
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
      throw new TypeError(`${this.#url.href} is no http or https address`);
    }
  }

  async start(events: ClientEvents): Promise<void> {
    const UndiciPool = loadPool();
    const { connections = 64, connectTimeoutMs = 10_000, answerMs = 300_000, socketPath, lookup, tls } = this.#options;
    this.#pool = new UndiciPool(this.#url.origin, {
      connections,
      pipelining: 1,
      headersTimeout: answerMs,
      // A quiet event stream is no failure; a plain body has a timer of its own.
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
      // An answer that is a refusal is nobody's before it is clear that there will be no other.
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
