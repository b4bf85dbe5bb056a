// WebSocket, serving side: subprotocol `mcp`, one text frame a message.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { ServerChannel } from "./channel.js";
import { Connections } from "./connections.js";
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

interface Connected {
  readonly ws: WebSocket;
  readonly channel: ServerChannel;
  answersPing: boolean;
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
  const sockets = new Connections<Socket>(limits.maxConnections, (socket) => socket.destroy());
  const connected = new Map<Duplex, Connected>();
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
    if (!sockets.admit(socket)) socket.destroy();
    else socket.on("close", () => sockets.remove(socket));
  });
  server.on("request", (_req: IncomingMessage, res: ServerResponse) => {
    res.writeHead(426, { upgrade: "websocket", connection: "close", "content-type": "text/plain; charset=utf-8" });
    res.end("this is a WebSocket endpoint; connect with subprotocol mcp");
  });
  server.on("upgrade", (req: IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    const refused = refusal(req, path, guard);
    if (refused !== undefined) {
      refuse(socket, refused.status, refused.reason);
      return;
    }
    upgrader.handleUpgrade(req, socket, head, (ws) => {
      const peer: Peer = { transport: "websocket", address: socket.remoteAddress ?? "unix", headers: req.headers };
      const entry = serve(ws, peer, handler, limits, () => sockets.spoke(socket));
      connected.set(socket, entry);
      entry.channel.onClose(() => connected.delete(socket));
      handler.connected?.(entry.channel);
    });
  });

  await listenAt(server, options);
  const url = `${options.tls === undefined ? "ws" : "wss"}://${authorityOf(server)}${path}`;
  const sweepTimer = every(limits.idleMs || 20_000, (now) => {
    for (const { channel } of connected.values()) channel.sweep(now);
  });
  const pingTimer = setInterval(() => {
    for (const entry of connected.values()) pingOrCut(entry);
  }, options.pingMs ?? 30_000).unref();

  return {
    url,
    get connections() {
      return sockets.size;
    },
    async close(graceMs = DEFAULT_GRACE_MS) {
      clearInterval(sweepTimer);
      clearInterval(pingTimer);
      const stopped = new Promise<void>((resolve) => server.close(() => resolve()));
      const channels = [...connected.values()].map((entry) => entry.channel);
      await closeChannels(channels, graceMs);
      const last = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
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

function serve(
  ws: WebSocket,
  peer: Peer,
  handler: Handler,
  limits: ResolvedLimits,
  spoke: () => void,
): Connected {
  const channel = new ServerChannel(peer, new WebSocketPort(ws), handler, limits);
  const entry: Connected = { ws, channel, answersPing: true };
  ws.on("message", (data: Buffer, isBinary: boolean) => {
    spoke();
    if (!isBinary) {
      channel.receive(data.toString("utf8"));
      return;
    }
    channel.receiveMalformed({ kind: "binary-frame", message: "only text frames are accepted" });
    ws.close(1003, "text frames only");
  });
  ws.on("pong", () => {
    entry.answersPing = true;
  });
  ws.on("error", (error) => {
    // ws has closed the connection with the right code by now: what follows such a frame cannot be told apart any more.
    const problem = malformedBy(error, limits.maxMessageBytes);
    if (problem !== undefined) channel.receiveMalformed(problem);
    channel.close();
  });
  ws.on("close", () => channel.gone());
  return entry;
}

function pingOrCut(entry: Connected): void {
  if (!entry.answersPing) {
    entry.channel.cut("did not answer a ping");
    return;
  }
  entry.answersPing = false;
  entry.ws.ping();
}
