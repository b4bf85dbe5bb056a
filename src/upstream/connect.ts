// From a target to a connection that has agreed on a revision.

import { Fault } from "../mcp/index.js";
import {
  type Cancellation,
  type ConnectionEvents,
  HttpClient,
  HttpSessionConnection,
  type OpenPort,
  PersistentConnection,
  type PersistentTransport,
  type SessionTerms,
  serverUnavailable,
} from "../mcp/session/index.js";
import type { Dialer } from "./dialer.js";
import { OpenApiConnection } from "./openapi/connection.js";
import { SseTransport } from "./persistent/sse.js";
import { StdioTransport, TcpTransport } from "./persistent/stdio.js";
import { WebSocketTransport } from "./persistent/websocket.js";
import type { OpenApiSource, ProcessFacts, UpstreamConnection, UpstreamContext, UpstreamOptions } from "./types.js";

interface Opening extends UpstreamConnection {
  open(terms: SessionTerms): Promise<void>;
}

export async function connectUpstream(
  options: UpstreamOptions,
  context: UpstreamContext,
  terms: SessionTerms,
  events: ConnectionEvents,
  cancel: Cancellation,
  /** Called with each connection before it is opened: what is known of its process is of use when that fails. */
  opening: (connection: UpstreamConnection) => void,
): Promise<UpstreamConnection> {
  const { target } = options;
  try {
    const connection = prepare(options, context, events);
    opening(connection);
    return await opened(connection, context, terms, cancel);
  } catch (error) {
    const status = error instanceof Fault ? error.detail.extra?.status : undefined;
    if (target.transport !== "http" || "openapi" in target || !BEFORE_STREAMABLE.has(status)) throw error;
    // Servers of 2024 answer a POST like this; where they are, the same address gives an event stream.
    const older = prepare({ ...options, target: { ...target, transport: "sse" } }, context, events);
    return opened(older, context, { ...terms, era: "legacy" }, cancel).catch(() => {
      throw error;
    });
  }
}

/** By the specification's advice on servers that have HTTP+SSE alone. */
const BEFORE_STREAMABLE: ReadonlySet<unknown> = new Set([400, 404, 405]);

async function opened(
  connection: Opening,
  context: UpstreamContext,
  terms: SessionTerms,
  cancel: Cancellation,
): Promise<UpstreamConnection> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    cancel.onAbort(reject);
    timer = setTimeout(() => {
      reject(serverUnavailable(context.server, `it was not ready within ${terms.startMs} ms`));
    }, terms.startMs);
  });
  try {
    await Promise.race([connection.open(terms), late]);
    return connection;
  } catch (error) {
    await connection.close().catch(() => {});
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** A connection to a server that was started here. */
class ProcessConnection extends PersistentConnection {
  readonly #stdio: StdioTransport;

  constructor(stdio: StdioTransport, context: UpstreamContext, events: ConnectionEvents) {
    super(stdio, context, events);
    this.#stdio = stdio;
  }

  get process(): ProcessFacts | undefined {
    return this.#stdio.process;
  }
}

function prepare(options: UpstreamOptions, context: UpstreamContext, events: ConnectionEvents): Opening {
  const { target } = options;
  const over = (wire: PersistentTransport): Opening => new PersistentConnection(wire, context, events);
  switch (target.transport) {
    case "stdio":
      return new ProcessConnection(new StdioTransport(target, context), context, events);
    case "tcp":
      return over(new TcpTransport(target, dialerOf(options), context));
    case "http":
      if ("openapi" in target) return overApi(urlOf(target.url, HTTP), target.openapi, options, context, events);
      return overHttp(urlOf(target.url, HTTP), options, context, events);
    case "sse":
      return over(new SseTransport(urlOf(target.url, HTTP), dialerOf(options), options.credentials, context));
    case "websocket":
      return over(new WebSocketTransport(urlOf(target.url, WS), dialerOf(options), options.credentials, context));
  }
}

function overHttp(url: URL, options: UpstreamOptions, context: UpstreamContext, events: ConnectionEvents): Opening {
  const dialer = dialerOf(options);
  const open: OpenPort = async ({ disconnected }) =>
    new HttpClient(url, (to) => dialer.connect(to), context, disconnected);
  return new HttpSessionConnection(open, options.credentials, context, events);
}

function overApi(
  url: URL,
  source: OpenApiSource,
  options: UpstreamOptions,
  context: UpstreamContext,
  events: ConnectionEvents,
): Opening {
  return new OpenApiConnection(url, source, dialerOf(options), options.credentials, context, events);
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
    throw new TypeError(`\`${text}\` is not an address that begins with ${schemes.join("// or ")}//`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new TypeError(`the address of ${url.host} holds a password; give it as a credential`);
  }
  return url;
}

// What can go wrong with a server beyond its session.

/** The server lists another definition than the one the call was decided for; nothing was sent. */
export function definitionChanged(server: string, kind: string, name: string, isMissing: boolean): Fault {
  const what = `${kind} \`${name}\` of server \`${server}\``;
  const why = isMissing
    ? `${what} is not listed by the server any more`
    : `${what} is pending review: its definition is not the one that was accepted`;
  return new Fault("PolicyDeny", why, {
    extra: { server, delivered: false },
    suggestions: ["List again", `An operator compares and accepts changes with \`portcullis pin ls APP ${server}\``],
  });
}
