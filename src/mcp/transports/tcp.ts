// TCP: one text a line, as on stdio.

import { connect, createServer, type LookupFunction, type Socket } from "node:net";
import { ByteBudget } from "../index.js";
import type { ServerChannel } from "./channel.js";
import { Connections } from "./connections.js";
import { linkLines, serveLines } from "./lines.js";
import {
  authorityOf,
  closeChannels,
  DEFAULT_GRACE_MS,
  DEFAULT_HOST,
  everyMs,
  type ListenAt,
  listenAt,
  peerAddress,
} from "./listen.js";
import { type ClientLink, NOT_STARTED, withinTime } from "./outbox.js";
import {
  type ClientEvents,
  type ClientTransport,
  type Listener,
  resolveLimits,
  type SendOptions,
  type Sent,
  TransportError,
  type TransportHandler,
  type TransportLimits,
} from "./types.js";

export interface TcpServerOptions extends ListenAt {
  limits?: Partial<TransportLimits>;
  /** After the peer has closed its side, exchanges under way may take this long; 5 s unless said. */
  lingerMs?: number;
}

/**
 * What starts otherwise speaks another protocol, and may have text of another author further down that reads as a message:
 * a browser that a page made post to this port, by HTTP or inside a TLS handshake, or a proxy that names its client first
 * (`PROXY TCP4 …`). The first line decides.
 */
const MESSAGE = /^\s*[[{"]/;

export async function listenTcp(handler: TransportHandler, options: TcpServerOptions = {}): Promise<Listener> {
  const limits = resolveLimits(options.limits);
  const budget = new ByteBudget(limits.maxPartialBytes);
  const connections = new Connections<ServerChannel>(limits.maxConnections, limits.maxConnectionsPerAddress);
  const sockets = new Set<Socket>();

  const server = createServer(
    { allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 },
    (socket) => {
      let isKnown = false;
      const accept = (text: string | undefined) => {
        isKnown ||= text !== undefined && MESSAGE.test(text);
        return isKnown;
      };
      const admit = (channel: ServerChannel) => {
        channel.onMessage = () => connections.completed(channel);
        return connections.admit(channel);
      };
      const unfinished = (channel: ServerChannel) => connections.began(channel);
      const peer = { transport: "tcp", address: peerAddress(socket, options) } as const;
      const lingerMs = options.lingerMs ?? 5_000;
      const channel = serveLines(socket, socket, {
        peer,
        handler,
        limits,
        budget,
        lingerMs,
        accept,
        admit,
        unfinished,
      });
      sockets.add(socket);
      // Not when the channel closes: until the socket is gone it takes up room.
      socket.on("close", () => {
        connections.remove(channel);
        sockets.delete(socket);
      });
    },
  );

  await listenAt(server, options);
  const authority = authorityOf(server);
  const timer = everyMs(limits.idleMs || 20_000, (now) => {
    for (const channel of connections) channel.sweep(now);
  });

  return {
    url: `tcp://${authority}`,
    get connections() {
      return connections.size;
    },
    async close(graceMs = DEFAULT_GRACE_MS) {
      clearInterval(timer);
      const stopped = new Promise<void>((resolve) => server.close(() => resolve()));
      await closeChannels(connections, graceMs);
      const last = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, 1_000);
      await stopped;
      clearTimeout(last);
    },
  };
}

export interface TcpClientOptions {
  host?: string;
  port?: number;
  /** A Unix socket instead of host and port. */
  socketPath?: string;
  limits?: Partial<TransportLimits>;
  /** 10 s unless said. */
  connectTimeoutMs?: number;
  /** Resolves the host's name, where the caller wants a say in that. */
  lookup?: LookupFunction;
}

export function tcpClient(options: TcpClientOptions): ClientTransport {
  return new TcpClient(options);
}

class TcpClient implements ClientTransport {
  readonly kind = "tcp";
  readonly #options: TcpClientOptions;
  #socket: Socket | undefined;
  #link: ClientLink | undefined;

  constructor(options: TcpClientOptions) {
    this.#options = options;
  }

  async start(events: ClientEvents): Promise<void> {
    const { host = DEFAULT_HOST, port = 0, socketPath, lookup, connectTimeoutMs = 10_000 } = this.#options;
    const limits = resolveLimits(this.#options.limits);
    const target = socketPath ?? `${host}:${port}`;
    const socket = connect(
      socketPath === undefined
        ? { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000, lookup }
        : { path: socketPath },
    );
    this.#socket = socket;
    const connected = new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", (error) => reject(new TransportError("unreachable", `${target}: ${error.message}`, error)));
    });
    try {
      const late = () => new TransportError("timeout", `${target} did not accept within ${connectTimeoutMs} ms`);
      await withinTime(connected, connectTimeoutMs, late);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    const link = linkLines(socket, socket, events, limits);
    let broken: Error | undefined;
    socket.on("error", (error) => {
      broken = error;
    });
    socket.on("close", () => link.gone(new TransportError("closed", `${target} closed the connection`, broken)));
    this.#link = link;
  }

  async send(text: string, options?: SendOptions): Promise<Sent> {
    if (this.#link === undefined) throw new TransportError("closed", NOT_STARTED);
    return this.#link.send(text, options);
  }

  async close(): Promise<void> {
    const socket = this.#socket;
    this.#link?.gone();
    if (socket === undefined || socket.destroyed) return;
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    socket.destroySoon();
    const timer = setTimeout(() => socket.destroy(), 1_000);
    await closed;
    clearTimeout(timer);
  }
}
