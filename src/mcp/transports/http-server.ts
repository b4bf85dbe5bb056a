// HTTP, serving side, on bare `node:http`. POST on the MCP path is a message; everything else is the handler's.

import { createServer, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from "node:https";
import type { Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { ByteBudget } from "../index.js";
import { Connections } from "./connections.js";
import {
  discard,
  HttpConnection,
  HttpExchange,
  type HttpServerContext,
  type HttpTarget,
  ServedRequest,
} from "./http-exchange.js";
import {
  authorityOf,
  DEFAULT_GRACE_MS,
  DEFAULT_HOST,
  everyMs,
  HostGuard,
  type ListenAt,
  listenAt,
  peerAddress,
} from "./listen.js";
import { type Admission, type Listener, resolveLimits, type TransportHandler, type TransportLimits } from "./types.js";

export interface HttpServerOptions extends ListenAt {
  /** `/mcp` unless said. */
  path?: string;
  limits?: Partial<TransportLimits>;
  /** Names this server answers to; the loopback names and the listen address unless said. */
  allowedHosts?: readonly string[];
  /** Origins whose pages may call this server and read its answers, besides pages of the server's own origin. */
  allowedOrigins?: readonly string[];
  /** Key and certificate; with them the server speaks HTTPS. */
  tls?: TlsOptions;
  /** A comment is sent on quiet event streams this often; 15 s unless said, 0 for never. */
  heartbeatMs?: number;
}

const MAX_HEADER_BYTES = 16 * 1024;
/** Requests a client may send ahead on one connection. Few clients do, and each may make an answer wait here. */
const MAX_PIPELINED = 16;
/** Turns of the event loop until what waited in the kernel has been read. */
const READ_TURNS = 3;
const EXPOSED = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after";

export async function listenHttp(handler: TransportHandler, options: HttpServerOptions = {}): Promise<Listener> {
  const server = new HttpServer(handler, options);
  await server.listen();
  return server;
}

class HttpServer implements Listener {
  url = "";
  readonly #options: HttpServerOptions;
  readonly #path: string;
  readonly #servedApplication: HttpServerContext;
  readonly #guard: HostGuard;
  readonly #server: Server<typeof ServedRequest>;
  readonly #connections = new Map<Socket, HttpConnection>();
  readonly #timers: NodeJS.Timeout[] = [];

  constructor(handler: TransportHandler, options: HttpServerOptions) {
    const limits = resolveLimits(options.limits);
    this.#options = options;
    this.#path = options.path ?? "/mcp";
    this.#servedApplication = {
      handler,
      limits,
      budget: new ByteBudget(limits.maxPartialBytes),
      connections: new Connections(limits.maxConnections, limits.maxConnectionsPerAddress),
      streams: new Set(),
      usualHead: usualHead(limits.idleMs),
      closing: false,
    };
    this.#guard = new HostGuard({
      listenHost: options.host ?? DEFAULT_HOST,
      allowedHosts: options.allowedHosts,
      allowedOrigins: options.allowedOrigins,
    });
    const settings = {
      IncomingMessage: ServedRequest,
      // Two Host, Origin or Authorization headers become one value that matches nothing, instead of the first one.
      joinDuplicateHeaders: true,
      insecureHTTPParser: false,
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.headersMs + limits.bodyMs,
      connectionsCheckingInterval: Math.min(5_000, Math.max(50, Math.floor(limits.headersMs / 4))),
      keepAliveTimeout: limits.idleMs,
      keepAlive: true,
      keepAliveInitialDelay: 30_000,
      noDelay: true,
    };
    this.#server =
      options.tls === undefined
        ? createServer(settings)
        : createTlsServer({ handshakeTimeout: limits.headersMs, ...settings, ...options.tls });
    // Sockets still shaking hands are not in our table yet.
    if (options.tls !== undefined) this.#server.maxConnections = 2 * limits.maxConnections;
    this.#server.on(options.tls === undefined ? "connection" : "secureConnection", (socket: Socket) =>
      this.#connected(socket),
    );
    this.#server.on("request", (req, res) => this.#request(req, res));
  }

  get connections(): number {
    return this.#servedApplication.connections.size;
  }

  async listen(): Promise<void> {
    await listenAt(this.#server, this.#options);
    const { tls, socketPath, heartbeatMs = 15_000 } = this.#options;
    const address = this.#server.address();
    if (address !== null && typeof address === "object") {
      this.#guard.listensOn(tls === undefined ? "http" : "https", address.port);
    }
    const authority = socketPath === undefined ? authorityOf(this.#server) : "localhost";
    this.url = `${tls === undefined ? "http" : "https"}://${authority}${this.#path}`;
    const { limits } = this.#servedApplication;
    const sweep = (now: number) => this.#connections.forEach((connection) => connection.sweep(now, limits));
    this.#timers.push(everyMs(limits.idleMs || 20_000, sweep));
    if (heartbeatMs > 0) {
      const beat = () => this.#servedApplication.streams.forEach((exchange) => exchange.heartbeat());
      this.#timers.push(setInterval(beat, heartbeatMs).unref());
    }
  }

  async close(graceMs: number = DEFAULT_GRACE_MS): Promise<void> {
    this.#servedApplication.closing = true;
    this.#timers.forEach(clearInterval);
    await this.#readPaused();
    const stopped = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    // A connection becomes idle when its last answer has gone out; there is no event, so it is polled.
    const idle = setInterval(() => this.#server.closeIdleConnections(), 20);
    const last = setTimeout(() => this.#server.closeAllConnections(), graceMs);
    await stopped;
    clearInterval(idle);
    clearTimeout(last);
    // The server may say that it is closed before the last sockets do.
    for (const connection of this.#connections.values()) this.#disconnected(connection);
  }

  /** Requests that wait in the kernel are answered: a connection that just closes would leave their callers uncertain. */
  async #readPaused(): Promise<void> {
    let isAnyPaused = false;
    for (const { flow } of this.#connections.values()) {
      isAnyPaused ||= flow.isPaused;
      flow.close();
    }
    for (let i = 0; isAnyPaused && i < READ_TURNS; i++) await nextTurn();
  }

  #connected(socket: Socket): void {
    const connection = new HttpConnection(socket, peerAddress(socket, this.#options));
    if (!this.#servedApplication.connections.admit(connection)) {
      socket.destroy();
      return;
    }
    this.#connections.set(socket, connection);
    socket.on("close", () => this.#disconnected(connection));
  }

  #disconnected(connection: HttpConnection): void {
    this.#servedApplication.connections.remove(connection);
    this.#connections.delete(connection.socket);
    connection.flow.close();
    for (const exchange of connection.open.splice(0)) exchange.abort();
  }

  #request(req: ServedRequest, res: ServerResponse): void {
    const connection = this.#connections.get(req.socket);
    if (connection === undefined || connection.open.length >= MAX_PIPELINED) {
      req.socket.destroy();
      return;
    }
    this.#servedApplication.connections.began(connection);
    const { headers, method, url = "" } = req;
    const refusal = this.#guard.refusal(headers);
    if (refusal !== undefined) return this.#refuse(req, res, 403, refusal);
    const shared = this.#guard.sharesWith(headers.origin) ? sharedWith(headers.origin) : undefined;
    if (method === "OPTIONS" && shared !== undefined) return answerPreflight(req, res, shared);
    if (url.charCodeAt(0) !== 0x2f) return this.#refuse(req, res, 400, "the request target must be a path");

    const target = this.#target(url);
    // A page can post a form, a plain text or nothing to any address without asking; JSON it cannot.
    if (method === "POST" && !isJson(headers["content-type"])) {
      return this.#refuse(req, res, 415, "the body must be application/json in UTF-8; say so in content-type");
    }
    if (headers["content-encoding"] !== undefined && headers["content-encoding"] !== "identity") {
      return this.#refuse(req, res, 415, "compressed bodies are not accepted; send it without content-encoding");
    }
    const exchange = new HttpExchange(this.#servedApplication, connection, req, res, target, shared);
    req.exchange = exchange;
    const announced = Number(headers["content-length"] ?? 0);
    const admission = this.#servedApplication.handler.admit?.(exchange.peer) ?? {};
    if (!(admission instanceof Promise)) return this.#read(req, exchange, admission, announced);
    // Until it is known whose it is, nothing of the body is read.
    void admission.then((known) => {
      if (!exchange.ended) this.#read(req, exchange, known, announced);
    });
  }

  #read(req: ServedRequest, exchange: HttpExchange, admission: Admission, announcedBytes: number): void {
    exchange.admit(admission, announcedBytes);
    req.on("data", onData);
    req.on("end", onEnd);
  }

  #refuse(req: ServedRequest, res: ServerResponse, status: number, reason: string): void {
    req.on("data", (chunk: Buffer) => discard(req, chunk, this.#servedApplication.limits.maxMessageBytes));
    refuse(res, status, reason);
  }

  #target(url: string): HttpTarget {
    const mark = url.indexOf("?");
    const path = mark === -1 ? url : url.slice(0, mark);
    return {
      path,
      query: mark === -1 ? "" : url.slice(mark + 1),
      isMcpPath: path === this.#path,
    };
  }
}

/** As Node would write it, with the length to follow. */
function usualHead(idleMs: number): string {
  const keepAlive = idleMs === 0 ? "" : `Keep-Alive: timeout=${Math.floor(idleMs / 1_000)}\r\n`;
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nConnection: keep-alive\r\n${keepAlive}content-length: `;
}

function onData(this: ServedRequest, chunk: Buffer): void {
  this.exchange?.take(chunk);
}

function onEnd(this: ServedRequest): void {
  this.exchange?.complete();
}

const JSON_CONTENT = /^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i;

function isJson(contentType: string | undefined): boolean {
  return contentType === "application/json" || (contentType !== undefined && JSON_CONTENT.test(contentType));
}

function refuse(res: ServerResponse, status: number, reason: string): void {
  res.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(reason),
    "x-content-type-options": "nosniff",
  });
  res.end(reason);
}

function sharedWith(origin: string): Record<string, string> {
  return { "access-control-allow-origin": origin, "access-control-expose-headers": EXPOSED, vary: "Origin" };
}

function answerPreflight(req: ServedRequest, res: ServerResponse, shared: Readonly<Record<string, string>>): void {
  const asked = req.headers["access-control-request-headers"] ?? "";
  res.writeHead(204, {
    ...shared,
    "access-control-allow-methods": "GET, POST, DELETE",
    ...(/^[a-z0-9, -]{1,2000}$/i.test(asked) ? { "access-control-allow-headers": asked } : {}),
    "access-control-max-age": "600",
  });
  res.end();
}
