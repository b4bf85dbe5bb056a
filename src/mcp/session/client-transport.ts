// A `ClientTransport` as what a connection of the session engine sends through.

import type { IncomingHttpHeaders } from "node:http";
import type { ClientTransport, Sent } from "../transports/index.js";
import type { OpenPort } from "./http/connection.js";
import { type Exchange, type ExchangeSink, type HttpPort, type HttpRequestLine, isType } from "./http/exchange.js";
import type { PersistentTransport, PersistentTransportEvents } from "./types.js";

/** stdio, TCP, WebSocket, memory. */
export class PersistentPort implements PersistentTransport {
  readonly #transport: ClientTransport;

  constructor(transport: ClientTransport) {
    this.#transport = transport;
  }

  open(events: PersistentTransportEvents): Promise<void> {
    return this.#transport.start({
      message: (text) => events.message(text),
      // Some request will not be answered; the beginning of the text may say which.
      malformed: ({ head = "" }) => events.oversized(head),
      closed: (error) => events.closed(error?.message ?? "the server closed the connection"),
    });
  }

  async send(text: string): Promise<void> {
    await this.#transport.send(text);
  }

  close(): Promise<void> {
    return this.#transport.close();
  }
}

export function httpPortOf(transport: ClientTransport): OpenPort {
  return async (events) => {
    await transport.start({ message: (text) => events.message(text), closed: () => {} });
    const port: HttpPort = {
      send: (line, sink) => new TransportExchange(transport, line, sink),
      close: () => transport.close(),
    };
    return port;
  };
}

class TransportExchange implements Exchange {
  readonly started = true;
  readonly #stop = new AbortController();
  #sent: Sent | undefined;

  constructor(transport: ClientTransport, line: HttpRequestLine, sink: ExchangeSink) {
    const headers: Record<string, string> = {};
    for (let i = 0; i < line.headers.length; i += 2) headers[line.headers[i] as string] = line.headers[i + 1] as string;
    const done = (error?: Error): void => {
      if (!this.#stop.signal.aborted) sink.done(this, error);
    };
    // The first events may be here before the head is, which names the session.
    const early: string[] = [];
    const onEvent = (text: string): void => {
      if (this.#sent === undefined) early.push(text);
      else if (!this.#stop.signal.aborted) sink.message(text, this);
    };
    // A session sends no others.
    const verb = line.method as "POST" | "GET" | "DELETE";
    transport.send(line.body ?? "", { verb, headers, signal: this.#stop.signal, onEvent }).then((sent) => {
      this.#sent = sent;
      if (!this.#stop.signal.aborted) sink.head?.(this);
      for (const text of early) onEvent(text);
      sent.done.then(() => done(), done);
    }, done);
  }

  get status(): number {
    return this.#sent?.status ?? 0;
  }

  get headers(): IncomingHttpHeaders {
    return this.#sent?.headers ?? {};
  }

  get body(): string | undefined {
    return this.#sent?.body;
  }

  get isStream(): boolean {
    return isType(this.headers, "text/event-stream");
  }

  get lastEventId(): string | undefined {
    return this.#sent?.lastEventId;
  }

  get retryMs(): number | undefined {
    return this.#sent?.retryMs;
  }

  abort(): void {
    this.#stop.abort();
  }
}
