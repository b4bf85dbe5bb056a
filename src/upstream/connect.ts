// From a target to a connection that has agreed on a revision.

import { Fault } from "../protocol/index.js";
import type { Connection, ConnectionEvents } from "./connection.js";
import type { Dialer } from "./dialer.js";
import { LastWords, unavailable } from "./faults.js";
import { HttpConnection } from "./http/connection.js";
import { LastingConnection } from "./lasting/connection.js";
import { SseWire } from "./lasting/sse.js";
import { StdioWire } from "./lasting/stdio.js";
import { TcpWire } from "./lasting/tcp.js";
import { WebSocketWire } from "./lasting/websocket.js";
import type { Wire } from "./lasting/wire.js";
import type { Terms } from "./negotiate.js";
import type { Surroundings } from "./pending.js";
import type { UpstreamOptions } from "./types.js";

interface Opening extends Connection {
  open(terms: Terms): Promise<void>;
}

export async function connect(
  options: UpstreamOptions,
  around: Surroundings,
  terms: Terms,
  events: ConnectionEvents,
): Promise<Connection> {
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

async function opened(connection: Opening, around: Surroundings, terms: Terms): Promise<Connection> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(unavailable(around.server, `it was not ready within ${terms.startMs} ms`));
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

function prepare(options: UpstreamOptions, around: Surroundings, events: ConnectionEvents): Opening {
  const { target } = options;
  const over = (wire: Wire): Opening => new LastingConnection(wire, around, events);
  switch (target.transport) {
    case "stdio":
      return over(new StdioWire(target, around));
    case "tcp":
      return over(new TcpWire(target, dialerOf(options), around));
    case "http":
      return new HttpConnection(urlOf(target.url, HTTP), dialerOf(options), options.credentials, around, events);
    case "sse":
      return over(new SseWire(urlOf(target.url, HTTP), dialerOf(options), options.credentials, around));
    case "websocket":
      return over(new WebSocketWire(urlOf(target.url, WS), dialerOf(options), options.credentials, around));
  }
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

function withLastWords(error: unknown, connection: Connection): unknown {
  const said = connection.process?.lastWords ?? "";
  if (!(error instanceof Fault) || said === "") return error;
  return new Fault(error.type, error.message, { ...error.detail, cause: new LastWords(said) });
}
