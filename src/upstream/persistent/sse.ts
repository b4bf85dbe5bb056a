// HTTP+SSE as servers of 2024-11-05 speak it: everything they say comes on one event stream, whose first event names
// the address that takes messages to them.

import {
  addHeaders,
  type Exchange,
  faultOfError,
  faultOfStatus,
  HttpClient,
  lost,
  type PersistentTransport,
  type PersistentTransportEvents,
  sendAndForget,
  serverUnavailable,
} from "../../mcp/session/index.js";
import type { Dialer } from "../dialer.js";
import type { Credentials, UpstreamContext } from "../types.js";

export class SseTransport implements PersistentTransport {
  readonly #url: URL;
  readonly #dialer: Dialer;
  readonly #credentials: Credentials | undefined;
  readonly #context: UpstreamContext;
  #client: HttpClient | undefined;
  #stream: Exchange | undefined;
  #endpoint: string | undefined;
  #unsent = 0;
  #closed = false;
  #events: PersistentTransportEvents | undefined;

  constructor(url: URL, dialer: Dialer, credentials: Credentials | undefined, context: UpstreamContext) {
    this.#url = url;
    this.#dialer = dialer;
    this.#credentials = credentials;
    this.#context = context;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const { server } = this.#context;
    this.#events = events;
    const client = new HttpClient(this.#url, (to) => this.#dialer.connect(to), this.#context);
    this.#client = client;
    const headers = ["accept", "text/event-stream"];
    addHeaders(headers, await this.#credentials?.headers("GET"));
    await new Promise<void>((resolve, reject) => {
      this.#stream = client.send(
        { method: "GET", headers },
        {
          head: (exchange) => {
            if (exchange.isStream && exchange.status === 200) return;
            exchange.abort();
            reject(faultOfStatus(server, exchange));
          },
          other: (type, data) => {
            if (type !== "endpoint" || this.#endpoint !== undefined) return;
            this.#endpoint = pathOf(data, this.#url);
            if (this.#endpoint === undefined)
              reject(serverUnavailable(server, "it wants messages sent to another origin"));
            else resolve();
          },
          message: (text) => {
            if (!this.#closed) events.message(text);
          },
          done: (exchange, error) => {
            reject(
              error === undefined ? lost(server, false, "its stream ended") : faultOfError(server, exchange, error),
            );
            this.#lose(error?.message ?? "its event stream ended");
          },
        },
      );
    });
  }

  send(text: string): void {
    const { server, limits } = this.#context;
    if (this.#endpoint === undefined || this.#closed) throw serverUnavailable(server, "it is not connected");
    if (this.#unsent > limits.maxUnsentBytes) throw serverUnavailable(server, "it does not read what is sent to it");
    this.#unsent += text.length;
    void this.#post(text, this.#endpoint).finally(() => {
      this.#unsent -= text.length;
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#stream?.abort();
    await this.#client?.close();
  }

  /** A server that does not take a message will not answer it either, and which call suffers is not known here. */
  async #post(body: string, path: string): Promise<void> {
    try {
      const headers = ["accept", "application/json", "content-type", "application/json"];
      addHeaders(headers, await this.#credentials?.headers("POST", path));
      const answered = this.#client && (await sendAndForget(this.#client, { method: "POST", path, headers, body }));
      if (answered !== undefined && answered.status >= 400) this.#lose(`it answered HTTP ${answered.status}`);
    } catch (error) {
      this.#lose((error as Error).message);
    }
  }

  #lose(why: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#events?.closed(why);
  }
}

/** Messages go where the stream came from, and nowhere else. */
function pathOf(given: string, base: URL): string | undefined {
  if (!URL.canParse(given, base.href)) return undefined;
  const url = new URL(given, base.href);
  return url.origin === base.origin ? url.pathname + url.search : undefined;
}
