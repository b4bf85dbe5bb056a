// WebSocket, both sides.

import type { LookupFunction } from "node:net";
import type { ConnectionOptions } from "node:tls";
import type { WebSocket } from "ws";
import { ClientLink, NOT_STARTED } from "./outbox.js";
import {
  type ClientEvents,
  type ClientTransport,
  resolveLimits,
  type SendOptions,
  type Sent,
  TransportError,
  type TransportLimits,
} from "./types.js";
import { malformedBy, SUBPROTOCOL, WebSocketPort } from "./websocket-server.js";

export { listenWebSocket, type WebSocketServerOptions } from "./websocket-server.js";

export interface WebSocketClientOptions {
  /** `ws://127.0.0.1:7421/mcp`. */
  url: string | URL;
  /** Sent with the upgrade. */
  headers?: Readonly<Record<string, string>>;
  limits?: Partial<TransportLimits>;
  /** 10 s unless said. */
  connectTimeoutMs?: number;
  /** A server that has not answered one ping when the next is due has vanished; 30 s unless said. */
  pingMs?: number;
  /** Resolves the host's name, where the caller wants a say in that. */
  lookup?: LookupFunction;
  tls?: ConnectionOptions;
}

export function webSocketClient(options: WebSocketClientOptions): ClientTransport {
  return new WebSocketClient(options);
}

/** After this long without a closing handshake the connection is simply ended. */
const CLOSE_MS = 1_000;

class WebSocketClient implements ClientTransport {
  readonly kind = "websocket";
  readonly #options: WebSocketClientOptions;
  #ws: WebSocket | undefined;
  #link: ClientLink | undefined;

  constructor(options: WebSocketClientOptions) {
    this.#options = options;
  }

  async start(events: ClientEvents): Promise<void> {
    const { WebSocket: Ws } = await import("ws");
    const { url, headers, connectTimeoutMs = 10_000, pingMs = 30_000, lookup, tls } = this.#options;
    const limits = resolveLimits(this.#options.limits);
    const ws = new Ws(url, [SUBPROTOCOL], {
      ...tls,
      ...(lookup === undefined ? {} : { lookup }),
      headers: { ...headers },
      handshakeTimeout: connectTimeoutMs,
      followRedirects: false,
      perMessageDeflate: false,
      maxPayload: limits.maxMessageBytes,
    });
    const link = new ClientLink(new WebSocketPort(ws), events, limits);
    // Listening before the upgrade is through: the first message may come with it.
    ws.on("message", (data: Buffer, isBinary: boolean) => {
      if (!isBinary) link.receive(data.toString("utf8"));
      else link.receiveMalformed({ kind: "binary-frame", message: "the server sent a binary frame" });
    });
    await opened(ws, String(url));
    watch(ws, link, limits.maxMessageBytes, String(url));
    const stopPinging = keepPinging(ws, pingMs);
    ws.once("close", stopPinging);
    this.#ws = ws;
    this.#link = link;
  }

  async send(text: string, options?: SendOptions): Promise<Sent> {
    if (this.#link === undefined) throw new TransportError("closed", NOT_STARTED);
    return this.#link.send(text, options);
  }

  async close(): Promise<void> {
    const ws = this.#ws;
    this.#link?.gone();
    if (ws === undefined || ws.readyState === ws.CLOSED) return;
    const closed = new Promise<void>((resolve) => ws.once("close", () => resolve()));
    ws.close(1000);
    const timer = setTimeout(() => ws.terminate(), CLOSE_MS);
    await closed;
    clearTimeout(timer);
  }
}

function opened(ws: WebSocket, url: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(new TransportError("unreachable", `${url}: ${error.message}`, error));
    ws.once("error", fail);
    ws.once("open", () => {
      ws.off("error", fail);
      resolve();
    });
  });
}

function watch(ws: WebSocket, link: ClientLink, maxBytes: number, url: string): void {
  let broken: Error | undefined;
  ws.on("error", (error) => {
    broken = error;
    const problem = malformedBy(error, maxBytes);
    if (problem !== undefined) link.receiveMalformed(problem);
  });
  ws.on("close", (code) =>
    link.gone(new TransportError("closed", `${url} closed the connection (code ${code})`, broken)),
  );
}

function keepPinging(ws: WebSocket, pingMs: number): () => void {
  let answered = true;
  ws.on("pong", () => {
    answered = true;
  });
  const timer = setInterval(() => {
    if (!answered) {
      ws.terminate();
      return;
    }
    answered = false;
    ws.ping();
  }, pingMs).unref();
  return () => clearInterval(timer);
}
