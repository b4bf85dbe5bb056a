// Requests to one address.

import type { buildConnector, Pool } from "undici";
import { ByteBudget, type TimeShare } from "../../index.js";
import { loadPool } from "../../transports/index.js";
import type { SessionContext } from "../types.js";
import { type Exchange, type ExchangeSink, HttpExchange, type HttpPort, type HttpRequestLine } from "./exchange.js";

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
  readonly #pool: Pool;

  /** `onDisconnected` when a connection was broken, or the last one has ended as both sides expect it to. */
  static async open(
    url: URL,
    connect: buildConnector.connector,
    around: SessionContext,
    onDisconnected: (isByAgreement: boolean) => void = () => {},
  ): Promise<HttpClient> {
    const UndiciPool = loadPool();
    const pool = new UndiciPool(url.origin, {
      connections: around.limits.connections,
      pipelining: 1,
      // Whoever calls keeps the time, and a quiet event stream is no failure.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect,
    });
    let open = 0;
    pool.on("connect", () => open++);
    pool.on("disconnect", (_origin, _targets, error) => {
      open--;
      const isByAgreement = (error as { code?: string }).code === "UND_ERR_INFO";
      if (!isByAgreement || open <= 0) onDisconnected(isByAgreement);
    });
    return new HttpClient(url, pool, around);
  }

  private constructor(url: URL, pool: Pool, { limits, budget, share }: SessionContext) {
    this.url = url;
    this.#path = url.pathname + url.search;
    this.#pool = pool;
    this.#maxBytes = limits.maxMessageBytes;
    this.#share = share;
    this.#unfinished = new ByteBudget(MAX_UNFINISHED * limits.maxMessageBytes, budget);
  }

  send(line: HttpRequestLine, sink: ExchangeSink): HttpExchange {
    const exchange = new HttpExchange(sink, this.#maxBytes, this.#unfinished, this.#share);
    const { method, headers, body } = line;
    const path = line.path ?? this.#path;
    this.#pool.dispatch(body === undefined ? { method, path, headers } : { method, path, headers, body }, exchange);
    return exchange;
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
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
