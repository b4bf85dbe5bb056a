// Where to connect to, in the forms people have it in.

import {
  type ClientTransport,
  type TransportHandler,
  httpClient,
  listenMemory,
  type MemoryListener,
  type StdioClientOptions,
  stdioClient,
  tcpClient,
  webSocketClient,
} from "../transports/index.js";
import { oauthCredentials } from "./auth.js";
import { type ConnectOptions, DEFAULT_CLIENT_LIMITS } from "./options.js";

/** A server that lives in this process: what stands behind a listening transport, or a listener in memory. */
export type InProcessTarget = TransportHandler | { readonly handler: TransportHandler } | MemoryListener;

/** `http(s)://…`, `ws(s)://…`, `tcp://host:port`, a command to start, a server in this process, or any transport. */
export type ConnectTarget = string | URL | Omit<StdioClientOptions, "limits"> | InProcessTarget | ClientTransport;

export interface Dialed {
  transport: ClientTransport;
  /** How policies name the server when the caller gives it no name. */
  name: string;
}

export async function dial(target: ConnectTarget, options: ConnectOptions): Promise<Dialed> {
  if (typeof target === "string" || target instanceof URL) return dialUrl(asUrl(target), options);
  if ("start" in target) return { transport: target, name: target.kind };
  if ("command" in target) {
    return { transport: stdioClient({ ...target, limits: wireLimits(options) }), name: target.command };
  }
  if ("client" in target) return { transport: target.client(wireLimits(options)), name: "memory" };
  return { transport: await inProcess("handler" in target ? target.handler : target, options), name: "memory" };
}

function asUrl(target: string | URL): URL {
  if (typeof target !== "string") return target;
  if (!URL.canParse(target)) {
    throw new TypeError(`\`${target}\` is no address; write http://…, ws://…, tcp://host:port, or give { command }`);
  }
  return new URL(target);
}

async function dialUrl(url: URL, options: ConnectOptions): Promise<Dialed> {
  // Without what may be secret in it: the name goes into records.
  const name = `${url.protocol}//${url.host}${url.pathname}`;
  const limits = wireLimits(options);
  switch (url.protocol) {
    case "http:":
    case "https:": {
      const { maxInFlight, maxListens, maxInputs } = { ...DEFAULT_CLIENT_LIMITS, ...options.limits };
      // Every stream holds a connection, and answers and cancellations need some as well.
      const connections = maxInFlight + maxListens + maxInputs;
      const credentials = options.auth && (await oauthCredentials(url, options.auth));
      return { transport: httpClient({ url, limits, connections, ...(credentials ? { credentials } : {}) }), name };
    }
    case "ws:":
    case "wss:": {
      const { headers = {} } = options;
      const given = typeof headers === "function" ? await headers() : headers;
      return { transport: webSocketClient({ url, limits, headers: given }), name };
    }
    case "tcp:":
      return {
        transport: tcpClient({ host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port), limits }),
        name,
      };
    default:
      throw new TypeError(`\`${url.protocol}\` is no transport; use http, https, ws, wss or tcp`);
  }
}

async function inProcess(handler: TransportHandler, options: ConnectOptions): Promise<ClientTransport> {
  const listener = await listenMemory(handler, { limits: wireLimits(options) });
  const transport = listener.client(wireLimits(options));
  return {
    kind: transport.kind,
    start: (events) => transport.start(events),
    send: (text, how) => transport.send(text, how),
    close: async () => {
      await transport.close();
      await listener.close(0);
    },
  };
}

function wireLimits(options: ConnectOptions): { maxMessageBytes?: number } {
  const maxMessageBytes = options.limits?.maxMessageBytes;
  return maxMessageBytes === undefined ? {} : { maxMessageBytes };
}
