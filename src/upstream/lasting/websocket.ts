// A server at the other end of a WebSocket, one text a frame.

import type { WebSocket } from "ws";
import type { Dialer } from "../dialer.js";
import { unavailable } from "../faults.js";
import type { Surroundings } from "../pending.js";
import type { Credentials } from "../types.js";
import type { Wire, WireEvents } from "./wire.js";

const SUBPROTOCOL = "mcp";
const CLOSE_MS = 1_000;
/** A server that has not answered one ping when the next is due has vanished. */
const PING_MS = 30_000;

export class WebSocketWire implements Wire {
  readonly #url: URL;
  readonly #dialer: Dialer;
  readonly #credentials: Credentials | undefined;
  readonly #around: Surroundings;
  #ws: WebSocket | undefined;
  #closed = false;

  constructor(url: URL, dialer: Dialer, credentials: Credentials | undefined, around: Surroundings) {
    this.#url = url;
    this.#dialer = dialer;
    this.#credentials = credentials;
    this.#around = around;
  }

  async open(events: WireEvents): Promise<void> {
    const { limits, timeouts, server } = this.#around;
    const { WebSocket: Ws } = await import("ws");
    const tls = this.#url.protocol === "wss:";
    const port = this.#url.port === "" ? (tls ? 443 : 80) : Number(this.#url.port);
    const headers = { ...(await this.#credentials?.headers("GET")) };
    const socket = await this.#dialer.connect({ host: this.#url.hostname, port, tls });
    const ws = new Ws(this.#url, [SUBPROTOCOL], {
      // The connection is there already, at an address that was judged.
      createConnection: () => socket,
      headers,
      handshakeTimeout: timeouts.startMs,
      followRedirects: false,
      perMessageDeflate: false,
      maxPayload: limits.maxMessageBytes,
    });
    this.#ws = ws;
    let why = "it closed the connection";
    ws.on("message", (data: Buffer, isBinary: boolean) => {
      if (this.#closed) return;
      if (isBinary) events.malformed("a binary frame");
      else events.message(data.toString("utf8"));
    });
    ws.on("error", (error) => {
      why = error.message;
    });
    await new Promise<void>((resolve, reject) => {
      ws.once("open", resolve);
      ws.once("close", () => reject(unavailable(server, why)));
    });
    const stopPinging = keepPinging(ws);
    ws.on("close", () => {
      stopPinging();
      if (!this.#closed) events.closed(why);
      this.#closed = true;
    });
    if (this.#closed) ws.terminate();
  }

  send(text: string): void {
    const { server, limits } = this.#around;
    if (this.#ws === undefined || this.#closed) throw unavailable(server, "it is not connected");
    if (this.#ws.bufferedAmount > limits.maxUnsentBytes)
      throw unavailable(server, "it does not read what is sent to it");
    this.#ws.send(text);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const ws = this.#ws;
    if (ws === undefined || ws.readyState === ws.CLOSED) return;
    const closed = new Promise<void>((resolve) => ws.once("close", () => resolve()));
    const timer = setTimeout(() => ws.terminate(), CLOSE_MS);
    if (ws.readyState === ws.CONNECTING) ws.terminate();
    else ws.close(1000);
    await closed;
    clearTimeout(timer);
  }
}

function keepPinging(ws: WebSocket): () => void {
  let isAnswered = true;
  ws.on("pong", () => {
    isAnswered = true;
  });
  const timer = setInterval(() => {
    if (!isAnswered) ws.terminate();
    else ws.ping();
    isAnswered = false;
  }, PING_MS).unref();
  return () => clearInterval(timer);
}
