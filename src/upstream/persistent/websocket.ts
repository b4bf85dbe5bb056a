// A server at the other end of a WebSocket, one text a frame.

import type { WebSocket } from "ws";
import { Charge } from "../../mcp/index.js";
import {
  ByteRate,
  type PersistentTransport,
  type PersistentTransportEvents,
  serverUnavailable,
} from "../../mcp/session/index.js";
import type { Dialer } from "../dialer.js";
import type { Credentials, UpstreamContext } from "../types.js";

const SUBPROTOCOL = "mcp";
const CLOSE_MS = 1_000;
/** A server that has not answered one ping when the next is due has vanished. */
const PING_MS = 30_000;

/** Pieces and fragments of one message: `ws` keeps each as it came. */
const MAX_PIECES = 16_384;
const MAX_FRAGMENTS = 256;
/** What a piece costs besides its bytes. */
const PIECE_BYTES = 128;

const MAX_PINGS = 1_000;

export class WebSocketTransport implements PersistentTransport {
  readonly #url: URL;
  readonly #dialer: Dialer;
  readonly #credentials: Credentials | undefined;
  readonly #context: UpstreamContext;
  #ws: WebSocket | undefined;
  #closed = false;

  constructor(url: URL, dialer: Dialer, credentials: Credentials | undefined, context: UpstreamContext) {
    this.#url = url;
    this.#dialer = dialer;
    this.#credentials = credentials;
    this.#context = context;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const { limits, timeouts, server, budget, share } = this.#context;
    const { WebSocket: Ws } = await import("ws");
    const tls = this.#url.protocol === "wss:";
    const port = this.#url.port === "" ? (tls ? 443 : 80) : Number(this.#url.port);
    const headers = { ...(await this.#credentials?.headers("GET")) };
    const socket = await this.#dialer.connect({ host: this.#url.hostname, port, tls });
    const ws = new Ws(this.#url, [SUBPROTOCOL], {
      // The connection is there already, at an address that was checked.
      createConnection: () => socket,
      headers,
      handshakeTimeout: timeouts.startMs,
      followRedirects: false,
      perMessageDeflate: false,
      maxPayload: limits.maxMessageBytes,
      maxFragments: MAX_FRAGMENTS,
      maxBufferedChunks: MAX_PIECES,
      autoPong: false,
    });
    this.#ws = ws;
    let why = "it closed the connection";
    const unfinished = new Charge(budget);
    let isDelivered = false;
    let startedAt = 0;
    ws.on("message", (data: Buffer, isBinary: boolean) => {
      isDelivered = true;
      if (this.#closed) return;
      if (isBinary) events.malformed("a binary frame");
      else events.message(data.toString("utf8"));
    });
    const pings = new ByteRate(MAX_PINGS);
    ws.on("ping", (data: Buffer) => {
      if (this.#closed || ws.readyState !== ws.OPEN) return;
      if (pings.take()) return ws.pong(data);
      why = `it sends more than ${MAX_PINGS} pings in ten seconds`;
      ws.terminate();
    });
    ws.on("error", (error) => {
      why = error.message;
    });
    await new Promise<void>((resolve, reject) => {
      ws.once("open", resolve);
      ws.once("close", () => reject(serverUnavailable(server, why)));
    });
    // `ws` reads between these two: what it keeps afterwards is part of an unfinished message.
    socket.prependListener("data", () => {
      startedAt = performance.now();
    });
    socket.on("data", (chunk: Buffer) => {
      const before = isDelivered ? 0 : unfinished.bytes;
      isDelivered = false;
      if (!unfinished.set(before + chunk.length + PIECE_BYTES)) {
        why = "it sends more unfinished messages than its application may keep";
        ws.terminate();
      }
      const pauseMs = share?.spend(performance.now() - startedAt, chunk.length) ?? 0;
      if (pauseMs === 0) return;
      ws.pause();
      setTimeout(() => ws.resume(), pauseMs);
    });
    const stopPinging = keepPinging(ws);
    ws.on("close", () => {
      stopPinging();
      unfinished.set(0);
      if (!this.#closed) events.closed(why);
      this.#closed = true;
    });
    if (this.#closed) ws.terminate();
  }

  send(text: string): void {
    const { server, limits } = this.#context;
    if (this.#ws === undefined || this.#closed) throw serverUnavailable(server, "it is not connected");
    if (this.#ws.bufferedAmount > limits.maxUnsentBytes)
      throw serverUnavailable(server, "it does not read what is sent to it");
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
