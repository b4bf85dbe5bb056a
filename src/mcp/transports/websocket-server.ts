// WebSocket, serving side: subprotocol `mcp`, one text frame a message.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from "node:https";
import type { Socket } from "node:net";
import type { WebSocket } from "ws";
import { ByteBudget, Charge } from "../index.js";
import { ServerChannel } from "./channel.js";
import { Connections, type Evictable } from "./connections.js";
import {
  authorityOf,
  closeChannels,
  DEFAULT_GRACE_MS,
  DEFAULT_HOST,
  everyMs,
  HostGuard,
  type ListenAt,
  listenAt,
  peerAddress,
} from "./listen.js";
import type { Port } from "./outbox.js";
import {
  type Admission,
  type Listener,
  type Malformed,
  type Peer,
  type Reply,
  type ReplyHead,
  type ResolvedLimits,
  resolveLimits,
  type TransportHandler,
  type TransportLimits,
} from "./types.js";

export interface WebSocketServerOptions extends ListenAt {
  /** `/mcp` unless said. */
  path?: string;
  limits?: Partial<TransportLimits>;
  /** Names this server answers to; the loopback names and the listen address unless said. */
  allowedHosts?: readonly string[];
  /** Origins whose pages may connect, besides the server's own. */
  allowedOrigins?: readonly string[];
  tls?: TlsOptions;
  /** A peer that has not answered one ping when the next is due has vanished; 30 s unless said. */
  pingMs?: number;
  /** Off unless said: compression costs memory for every connection. */
  perMessageDeflate?: boolean;
}

/** One connection, from its first byte; the WebSocket comes with the upgrade. */
class Visitor implements Evictable {
  readonly socket: Socket;
  readonly address: string;
  ws: WebSocket | undefined;
  channel: ServerChannel | undefined;
  #answersPing = true;

  constructor(socket: Socket, address: string) {
    this.socket = socket;
    this.address = address;
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

export async function listenWebSocket(
  handler: TransportHandler,
  options: WebSocketServerOptions = {},
): Promise<Listener> {
  // Loaded on first use, because most programs serve on something else.
  const { WebSocketServer } = await import("ws");
  const limits = resolveLimits(options.limits);
  const path = options.path ?? "/mcp";
  const guard = new HostGuard({
    listenHost: options.host ?? DEFAULT_HOST,
    allowedHosts: options.allowedHosts,
    allowedOrigins: options.allowedOrigins,
  });
  const connections = new Connections<Visitor>(limits.maxConnections, limits.maxConnectionsPerAddress);
  const budget = new ByteBudget(limits.maxPartialBytes);
  const visitors = new Map<Socket, Visitor>();
  const upgrader = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    maxPayload: limits.maxMessageBytes,
    maxFragments: MAX_FRAGMENTS,
    maxBufferedChunks: MAX_PIECES,
    autoPong: false,
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
    const visitor = new Visitor(socket, peerAddress(socket, options));
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
    const { address } = visitor;
    const peer: Peer = { transport: "websocket", address, headers: req.headers, method: "GET", path };
    const upgrade = (admission: Admission): void => {
      if (isWrongBearer(req, admission) && admission.refuse) return admission.refuse(upgradeReply(socket));
      upgrader.handleUpgrade(req, socket, head, (ws) => {
        const channel = serve(visitor, ws, peer, handler, limits);
        const unfinished = new UnfinishedMessage(visitor, ws, budget, connections);
        channel.onAdmitted = (own) => unfinished.admitted(own);
        channel.onMessage = () => connections.completed(visitor);
        channel.onSweep = (now) => unfinished.sweep(now, limits.bodyMs);
        channel.admit(admission);
        socket.on("data", (chunk: Buffer) => unfinished.received(chunk.length));
        handler.connected?.(channel);
      });
    };
    const admission = handler.admit?.(peer) ?? {};
    if (admission instanceof Promise) void admission.then((known) => socket.destroyed || upgrade(known));
    else upgrade(admission);
  });

  await listenAt(server, options);
  const listening = server.address();
  if (listening !== null && typeof listening === "object") {
    guard.listensOn(options.tls === undefined ? "http" : "https", listening.port);
  }
  const url = `${options.tls === undefined ? "ws" : "wss"}://${authorityOf(server)}${path}`;
  const sweepTimer = everyMs(limits.idleMs || 20_000, (now) => {
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

/** What each piece of an unfinished message costs besides its bytes: `ws` keeps the pieces as they came. */
const PIECE_BYTES = 128;
/** Pieces and fragments of one message. */
const MAX_PIECES = 16_384;
const MAX_FRAGMENTS = 256;
const FRAME_HEAD_BYTES = 14;
/** The head of a control frame of a client. */
const CONTROL_HEAD_BYTES = 6;
/** Heads of fragments. */
const SPARE_BYTES = 64 * 1024;
/** Pings of one connection in a second. Each costs an answer. */
const MAX_PINGS = 100;
const SECOND = 1_000;

/** Charges what `ws` holds of an unfinished message: every byte since the last complete message. */
class UnfinishedMessage {
  readonly #visitor: Visitor;
  readonly #connections: Connections<Visitor>;
  readonly #charge: Charge;
  #bytes = 0;
  #delivered = 0;
  /** Bytes of control frames in the piece being read. They are handled at once, and are part of no message. */
  #control = 0;
  #pings = 0;
  #pingsSince = 0;
  #since = 0;

  constructor(visitor: Visitor, ws: WebSocket, budget: ByteBudget, connections: Connections<Visitor>) {
    this.#visitor = visitor;
    this.#connections = connections;
    this.#charge = new Charge(budget);
    ws.on("message", (data: Buffer) => {
      this.#delivered += data.length;
    });
    ws.on("ping", (data: Buffer) => {
      this.#control += data.length + CONTROL_HEAD_BYTES;
      // On a connection that is cut off `ws` would make an error for each of the thousands that one read may hold.
      if (this.#countPing()) ws.pong(data);
    });
    ws.on("pong", (data: Buffer) => {
      this.#control += data.length + CONTROL_HEAD_BYTES;
    });
    ws.on("close", () => this.#charge.set(0));
  }

  admitted(budget: ByteBudget | undefined): void {
    if (budget) this.#charge.move(budget);
  }

  /** Called after `ws` has read the piece. */
  received(pieceBytes: number): void {
    const { channel } = this.#visitor;
    const delivered = this.#delivered;
    const bytes = Math.max(0, pieceBytes - this.#control);
    this.#delivered = 0;
    this.#control = 0;
    if (channel === undefined || channel.closed || bytes === 0) return;
    // After a complete message only the rest of this very piece can be held, and a rest as small as a frame's head
    // may be that head.
    const rest = delivered === 0 ? bytes : Math.max(0, bytes - delivered - FRAME_HEAD_BYTES);
    if (delivered === 0 || rest > 0) this.#connections.began(this.#visitor);
    const before = delivered === 0 ? this.#bytes : 0;
    if (before === 0) this.#since = performance.now();
    this.#bytes = before + rest;
    const fragments = before === 0 && rest > 0 ? MAX_FRAGMENTS * PIECE_BYTES : 0;
    const cost = delivered === 0 ? this.#charge.bytes + rest + PIECE_BYTES + fragments : rest + fragments;
    if (this.#bytes > channel.maxBytes + SPARE_BYTES) {
      channel.receiveMalformed({
        kind: "too-large",
        message: `a message is over the cap of ${channel.maxBytes} bytes`,
      });
      this.#end("message too large");
    } else if (!this.#charge.set(cost)) {
      channel.receiveMalformed({ kind: "too-many", message: "too many unfinished messages at once; try again later" });
      this.#end("too many unfinished messages");
    }
  }

  /** A message has to arrive whole within `bodyMs`, as on TCP. */
  sweep(now: number, bodyMs: number): void {
    if (this.#bytes > 0 && now - this.#since > bodyMs) this.#visitor.channel?.cut();
  }

  /** False when it is one too many, and the connection is cut off. */
  #countPing(): boolean {
    if (this.#visitor.channel?.closed !== false) return false;
    const now = performance.now();
    if (now - this.#pingsSince > SECOND) {
      this.#pings = 0;
      this.#pingsSince = now;
    }
    if (++this.#pings <= MAX_PINGS) return true;
    this.#visitor.channel.cut();
    return false;
  }

  /** Nothing more is read: `ws` would keep the rest of the message until the peer has answered the close frame. */
  #end(reason: string): void {
    const { channel, ws } = this.#visitor;
    channel?.close(reason);
    ws?.pause();
  }
}

/** A client that shows a wrong key learns it from the upgrade; one without a header may send `auth` with its messages. */
function isWrongBearer({ headers }: IncomingMessage, { fault }: Admission): boolean {
  return fault?.type === "AuthenticationError" && /^bearer /i.test(headers.authorization ?? "");
}

/** The answer to a refused upgrade, worded as for any other request. */
function upgradeReply(socket: Socket): Reply {
  const answer = {
    ended: false,
    send: () => false,
    drained: () => Promise.resolve(),
    open: () => {},
    onAbort: () => {},
    end: (text?: string | Buffer, head?: ReplyHead) => {
      if (answer.ended) return;
      answer.ended = true;
      const headers = { "content-type": "application/json", ...head?.headers };
      refuse(socket, `${head?.status ?? 401} Unauthorized`, text?.toString() ?? "", headers);
    },
  };
  return answer;
}

function refusal(req: IncomingMessage, path: string, guard: HostGuard): { status: string; reason: string } | undefined {
  const reason = guard.refusal(req.headers);
  if (reason !== undefined) return { status: "403 Forbidden", reason };
  if (req.url?.split("?", 1)[0] !== path) return { status: "404 Not Found", reason: "not found" };
  const offered = (req.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  if (!offered.includes(SUBPROTOCOL)) return { status: "400 Bad Request", reason: "offer the subprotocol mcp" };
  return undefined;
}

function refuse(
  socket: Socket,
  status: string,
  reason: string,
  headers: Readonly<Record<string, string>> = { "content-type": "text/plain; charset=utf-8" },
): void {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\n${lines.join("")}`;
  socket.end(`${head}Content-Length: ${Buffer.byteLength(reason)}\r\n\r\n${reason}`);
  socket.destroySoon();
}

function serve(
  visitor: Visitor,
  ws: WebSocket,
  peer: Peer,
  handler: TransportHandler,
  limits: ResolvedLimits,
): ServerChannel {
  const channel = new ServerChannel(peer, new WebSocketPort(ws), handler, limits);
  visitor.ws = ws;
  visitor.channel = channel;
  ws.on("message", (data: Buffer, isBinary: boolean) => {
    if (!isBinary) {
      if (data.length > channel.maxBytes) {
        const message = `a message is over the cap of ${channel.maxBytes} bytes`;
        channel.receiveMalformed({ kind: "too-large", message });
      } else channel.receive(data.toString("utf8"));
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

export const SUBPROTOCOL = "mcp";

export class WebSocketPort implements Port {
  readonly #ws: WebSocket;

  constructor(ws: WebSocket) {
    this.#ws = ws;
  }

  get waiting(): number {
    return this.#ws.bufferedAmount;
  }
  write(text: string | Buffer, taken: () => void): void {
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.send(text, { binary: false }, taken);
  }
  pause(): void {
    this.#ws.pause();
  }
  resume(): void {
    this.#ws.resume();
  }
  end(reason?: string): void {
    // A close frame holds at most 123 bytes of reason.
    this.#ws.close(1000, reason?.slice(0, 100));
  }
  destroy(): void {
    this.#ws.terminate();
  }
}

/** What a receive error of `ws` means in our words; undefined for those that are about the connection alone. */
export function malformedBy(error: Error & { code?: string }, maxBytes: number): Malformed | undefined {
  switch (error.code) {
    case "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH":
    case "WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH":
    case "WS_ERR_TOO_MANY_BUFFERED_PARTS":
      return { kind: "too-large", message: `a message is over the cap of ${maxBytes} bytes` };
    case "WS_ERR_INVALID_UTF8":
      return { kind: "not-utf8", message: "a message is not valid UTF-8" };
    default:
      return undefined;
  }
}
