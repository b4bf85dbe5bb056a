// From a target to a connection that has agreed on a revision.

import { Fault } from "../mcp/index.js";
import {
  type ConnectionEvents,
  serverUnavailable,
  HttpClient,
  HttpConnection,
  type OpenPort,
  PersistentConnection,
  type PersistentTransport,
  type SessionTerms,
} from "../mcp/session/index.js";
import type { ProcessFacts, UpstreamConnection } from "./connection.js";
import type { Dialer } from "./dialer.js";
import { outboundConnector } from "./outbound.js";
import { LastWords } from "./faults.js";
import { SseTransport } from "./persistent/sse.js";
import { StdioTransport } from "./persistent/stdio.js";
import { TcpTransport } from "./persistent/tcp.js";
import { WebSocketTransport } from "./persistent/websocket.js";
import type { UpstreamOptions, UpstreamContext } from "./types.js";

interface Opening extends UpstreamConnection {
  open(terms: SessionTerms): Promise<void>;
}

export async function connectUpstream(
  options: UpstreamOptions,
  around: UpstreamContext,
  terms: SessionTerms,
  events: ConnectionEvents,
): Promise<UpstreamConnection> {
  const { target } = options;
  try {
    return await opened(prepare(options, around, events), around, terms);
  } catch (error) {
    const status = error instanceof Fault ? error.detail.extra?.status : undefined;
    if (target.transport !== "http" || !BEFORE_STREAMABLE.has(status)) throw error;
    // Servers of 2024 answer a POST like this; where they are, the same address gives an event stream.
    const older = prepare({ ...options, target: { ...target, transport: "sse" } }, around, events);
    return opened(older, around, { ...terms, era: "legacy" }).catch(() => {
      throw error;
    });
  }
}

/** By the specification's advice on servers that have HTTP+SSE alone. */
const BEFORE_STREAMABLE: ReadonlySet<unknown> = new Set([400, 404, 405]);

async function opened(connection: Opening, around: UpstreamContext, terms: SessionTerms): Promise<UpstreamConnection> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(serverUnavailable(around.server, `it was not ready within ${terms.startMs} ms`));
    }, terms.startMs);
  });
  try {
    await Promise.race([connection.open(terms), late]);
    return connection;
  } catch (error) {
    await connection.close().catch(() => {});
    throw withLastWords(error, connection);
  } finally {
    clearTimeout(timer);
  }
}

/** A connection to a server that was started here. */
class ProcessConnection extends PersistentConnection {
  readonly #stdio: StdioTransport;

  constructor(stdio: StdioTransport, around: UpstreamContext, events: ConnectionEvents) {
    super(stdio, around, events);
    this.#stdio = stdio;
  }

  get process(): ProcessFacts | undefined {
    return this.#stdio.process;
  }
}

function prepare(options: UpstreamOptions, around: UpstreamContext, events: ConnectionEvents): Opening {
  const { target } = options;
  const over = (wire: PersistentTransport): Opening => new PersistentConnection(wire, around, events);
  switch (target.transport) {
    case "stdio":
      return new ProcessConnection(new StdioTransport(target, around), around, events);
    case "tcp":
      return over(new TcpTransport(target, dialerOf(options), around));
    case "http":
      return overHttp(urlOf(target.url, HTTP), options, around, events);
    case "sse":
      return over(new SseTransport(urlOf(target.url, HTTP), dialerOf(options), options.credentials, around));
    case "websocket":
      return over(new WebSocketTransport(urlOf(target.url, WS), dialerOf(options), options.credentials, around));
  }
}

function overHttp(url: URL, options: UpstreamOptions, around: UpstreamContext, events: ConnectionEvents): Opening {
  const connect = outboundConnector(dialerOf(options));
  const open: OpenPort = async ({ disconnected }) => HttpClient.open(url, connect, around, disconnected);
  return new HttpConnection(open, options.credentials, around, events);
}

function dialerOf(options: UpstreamOptions): Dialer {
  if (options.dialer !== undefined) return options.dialer;
  throw new TypeError(`server \`${options.name}\` is reached over the network; give it a dialer`);
}

const HTTP = ["http:", "https:"] as const;
const WS = ["ws:", "wss:"] as const;

function urlOf(text: string, schemes: readonly string[]): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !schemes.includes(url.protocol)) {
    throw new TypeError(`\`${text}\` is no address that begins with ${schemes.join("// or ")}//`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new TypeError(`the address of ${url.host} holds a password; give it as a credential`);
  }
  return url;
}

function withLastWords(error: unknown, connection: UpstreamConnection): unknown {
  const said = connection.process?.lastWords ?? "";
  if (!(error instanceof Fault) || said === "") return error;
  return new Fault(error.type, error.message, { ...error.detail, cause: new LastWords(said) });
}
