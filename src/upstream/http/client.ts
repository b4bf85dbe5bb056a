// Requests to one address over the dialer's connections.

import type { Pool } from "undici";
import type { Dialer } from "../dialer.js";
import { connector } from "../outbound.js";
import { Exchange, type ExchangeSink } from "./exchange.js";

export interface HttpRequestLine {
  readonly method: "POST" | "GET" | "DELETE";
  /** Path and query; the address's own unless given. */
  readonly path?: string;
  readonly headers: string[];
  readonly body?: string;
}

export class HttpClient {
  readonly url: URL;
  readonly #path: string;
  readonly #maxBytes: number;
  readonly #pool: Pool;

  static async open(url: URL, dialer: Dialer, connections: number, maxBytes: number): Promise<HttpClient> {
    // On first use: it takes a while to load, and stdio servers never need it.
    const undici = await import("undici");
    const pool = new undici.Pool(url.origin, {
      connections,
      pipelining: 1,
      // Whoever calls keeps the time, and a quiet event stream is no failure.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: connector(dialer),
    });
    return new HttpClient(url, pool, maxBytes);
  }

  private constructor(url: URL, pool: Pool, maxBytes: number) {
    this.url = url;
    this.#path = url.pathname + url.search;
    this.#pool = pool;
    this.#maxBytes = maxBytes;
  }

  send(line: HttpRequestLine, sink: ExchangeSink): Exchange {
    const exchange = new Exchange(sink, this.#maxBytes);
    const { method, headers, body } = line;
    const path = line.path ?? this.#path;
    this.#pool.dispatch(body === undefined ? { method, path, headers } : { method, path, headers, body }, exchange);
    return exchange;
  }

  /** Reads the answer to its end and throws it away; resolves with what is known of it. */
  sendAndForget(line: HttpRequestLine): Promise<Exchange> {
    return new Promise((resolve) => {
      this.send(line, { message: () => {}, done: (exchange) => resolve(exchange) });
    });
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }
}
