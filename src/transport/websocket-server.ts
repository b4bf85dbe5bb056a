// WebSocket, serving side: subprotocol `mcp`, one text frame a message.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from "node:https";
import type { Socket } from "node:net";
import type { WebSocket } from "ws";
import { ServerChannel } from "./channel.js";
import { Connections, type Guest } from "./connections.js";
import { HostGuard } from "./host-guard.js";
import { type ResolvedLimits, resolveLimits } from "./limits.js";
import {
  authorityOf,
  closeChannels,
  DEFAULT_GRACE_MS,
  DEFAULT_HOST,
  every,
  type ListenAt,
  listenAt,
} from "./listen.js";
import type { Handler, Listener, Peer, TransportLimits } from "./types.js";
import { malformedBy, SUBPROTOCOL, WebSocketPort } from "./websocket-port.js";

export interface WebSocketServerOptions extends ListenAt {
  /** `/mcp` unless said. */
  path?: string;
  limits?: Partial<TransportLimits>;
  /** Names this server answers to; the loopback names and the listen address unless said. */
  allowedHosts?: readonly string[];
  /** Origins whose pages may connect; those of the allowed hosts unless said. */
  allowedOrigins?: readonly string[];
  tls?: TlsOptions;
  /** A peer that has not answered one ping when the next is due has vanished; 30 s unless said. */
  pingMs?: number;
  /** Off unless said: compression costs memory for every connection. */
  perMessageDeflate?: boolean;
}

/** One connection, from its first byte; the WebSocket comes with the upgrade. */
class Visitor implements Guest {
  readonly socket: Socket;
  recent = false;
  ws: WebSocket | undefined;
  channel: ServerChannel | undefined;
  #answersPing = true;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  get busy(): boolean {
    return this.channel?.busy ?? false;
  }

  evict(): void {
    if (this.channel === undefined) this.socket.destroy();
    else this.channel.evict();
  }

  pong(): void {
    this.#answersPing = true;
  }

  pingOrCut(): void {
    if (!this.#answersPing) {
      this.channel?.cut();
      return;
    }
    this.#answersPing = false;
    this.ws?.ping();
  }
}

export async function listenWebSocket(handler: Handler, options: WebSocketServerOptions = {}): Promise<Listener> {
  // Loaded on first use, because most programs serve on something else.
  const { WebSocketServer } = await import("ws");
  const limits = resolveLimits(options.limits);
  const path = options.path ?? "/mcp";
  const guard = new HostGuard({
    listenHost: options.host ?? DEFAULT_HOST,
    allowedHosts: options.allowedHosts,
    allowedOrigins: options.allowedOrigins,
  });
  const connections = new Connections<Visitor>(limits.maxConnections);
  const visitors = new Map<Socket, Visitor>();
  const upgrader = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    maxPayload: limits.maxMessageBytes,
    perMessageDeflate: options.perMessageDeflate ?? false,
    handleProtocols: () => SUBPROTOCOL,
  });

  const settings = {
    joinDuplicateHeaders: true,
    maxHeaderSize: 16 * 1024,
    headersTimeout: limits.headersMs,
    requestTimeout: limits.headersMs,
    connectionsCheckingInterval: Math.min(5_000, Math.max(50, Math.floor(limits.headersMs / 4))),
    keepAliveTimeout: 1_000,
    keepAlive: true,
    keepAliveInitialDelay: 30_000,
    noDelay: true,
  };
  const server = options.tls === undefined ? createServer(settings) : createTlsServer({ ...settings, ...options.tls });
  server.on(options.tls === undefined ? "connection" : "secureConnection", (socket: Socket) => {
    const visitor = new Visitor(socket);
    if (!connections.admit(visitor)) {
      socket.destroy();
      return;
    }
    visitors.set(socket, visitor);
    socket.on("close", () => {
      connections.remove(visitor);
      visitors.delete(socket);
    });
  });
  server.on("request", (_req: IncomingMessage, res: ServerResponse) => {
    res.writeHead(426, { upgrade: "websocket", connection: "close", "content-type": "text/plain; charset=utf-8" });
    res.end("this is a WebSocket endpoint; connect with subprotocol mcp");
  });
  server.on("upgrade", (req: IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    const visitor = visitors.get(socket);
    if (visitor === undefined) return;
    const refused = refusal(req, path, guard);
    if (refused !== undefined) {
      refuse(socket, refused.status, refused.reason);
      return;
    }
    upgrader.handleUpgrade(req, socket, head, (ws) => {
      const address = socket.remoteAddress ?? "unix";
      const peer: Peer = { transport: "websocket", address, headers: req.headers, method: "GET", path };
      const channel = serve(visitor, ws, peer, handler, limits);
      handler.connected?.(channel);
    });
  });

  await listenAt(server, options);
  const url = `${options.tls === undefined ? "ws" : "wss"}://${authorityOf(server)}${path}`;
  const sweepTimer = every(limits.idleMs || 20_000, (now) => {
    for (const { channel } of connections) channel?.sweep(now);
  });
  const pingTimer = setInterval(() => {
    for (const visitor of connections) visitor.pingOrCut();
  }, options.pingMs ?? 30_000).unref();

  return {
    url,
    get connections() {
      return connections.size;
    },
    async close(graceMs = DEFAULT_GRACE_MS) {
      clearInterval(sweepTimer);
      clearInterval(pingTimer);
      const stopped = new Promise<void>((resolve) => server.close(() => resolve()));
      const channels = [...connections].flatMap(({ channel }) => channel ?? []);
      await closeChannels(channels, graceMs);
      const last = setTimeout(() => {
        for (const socket of visitors.keys()) socket.destroy();
      }, 500);
      await stopped;
      clearTimeout(last);
    },
  };
}

function refusal(req: IncomingMessage, path: string, guard: HostGuard): { status: string; reason: string } | undefined {
  const reason = guard.refusal(req.headers.host, req.headers.origin);
  if (reason !== undefined) return { status: "403 Forbidden", reason };
  if (req.url?.split("?", 1)[0] !== path) return { status: "404 Not Found", reason: "not found" };
  const offered = (req.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  if (!offered.includes(SUBPROTOCOL)) return { status: "400 Bad Request", reason: "offer the subprotocol mcp" };
  return undefined;
}

function refuse(socket: Socket, status: string, reason: string): void {
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n`;
  socket.end(`${head}Content-Length: ${Buffer.byteLength(reason)}\r\n\r\n${reason}`);
  socket.destroySoon();
}

function serve(visitor: Visitor, ws: WebSocket, peer: Peer, handler: Handler, limits: ResolvedLimits): ServerChannel {
  const channel = new ServerChannel(peer, new WebSocketPort(ws), handler, limits);
  visitor.ws = ws;
  visitor.channel = channel;
  ws.on("message", (data: Buffer, isBinary: boolean) => {
    visitor.recent = true;
    if (!isBinary) {
      channel.receive(data.toString("utf8"));
      return;
    }
    channel.receiveMalformed({ kind: "binary-frame", message: "only text frames are accepted" });
    ws.close(1003, "text frames only");
  });
  ws.on("pong", () => visitor.pong());
  ws.on("error", (error) => {
    // ws has closed the connection with the right code by now: what follows such a frame cannot be told apart any more.
    const problem = malformedBy(error, limits.maxMessageBytes);
    if (problem !== undefined) channel.receiveMalformed(problem);
    channel.close();
  });
  ws.on("close", () => channel.gone());
  return channel;
}
