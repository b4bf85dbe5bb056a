// One HTTP exchange of the admin port (JSON in, JSON out, nothing cached, framed or sniffed), and its connections. Idle
// connections, unfinished requests and requests without a credential make room for new ones, so they cannot keep an
// operator out.

import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { errorData, Fault, httpStatus, isJsonObject, type JsonObject, parseStrict } from "../mcp/index.js";
import { Connections, type Evictable } from "../mcp/transports/index.js";

export const ANSWER_HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

const MAX_DEPTH = 8;

export function sendText(
  response: ServerResponse,
  status: number,
  type: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  sendBytes(response, status, type, Buffer.from(text), headers);
}

export function sendBytes(
  response: ServerResponse,
  status: number,
  type: string,
  bytes: Buffer,
  headers: Readonly<Record<string, string>> = {},
): void {
  const length = { "content-type": type, "content-length": String(bytes.length) };
  response.writeHead(status, { ...ANSWER_HEADERS, ...headers, ...length });
  response.end(bytes);
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  sendText(response, status, "application/json", `${JSON.stringify(body)}\n`);
}

/** Sends the error object; `status` where HTTP has a better one than the error table. */
export function sendFault(response: ServerResponse, fault: Fault, traceId: string, status = httpStatus(fault)): void {
  if (status === 401) response.setHeader("www-authenticate", 'Bearer realm="portcullis admin"');
  const waitMs = fault.detail.extra?.retry_after_ms;
  if (typeof waitMs === "number") response.setHeader("retry-after", String(Math.ceil(waitMs / 1000)));
  // What is left of a body that was not read ends with the connection.
  response.setHeader("connection", "close");
  sendJson(response, status, { error: errorData(fault, traceId) });
}

/** The body as a strict JSON object; an empty body is an empty object. */
export async function readJson(request: IncomingMessage, maxBytes: number, maxDepth = MAX_DEPTH): Promise<JsonObject> {
  const type = request.headers["content-type"] ?? "";
  // A page of another origin can send a form or plain text without a preflight request, but not JSON.
  if (!/^application\/json\s*(;\s*charset=utf-8\s*)?$/i.test(type)) {
    throw new Fault("InvalidRequest", "the body must be JSON", {
      field: "Content-Type",
      suggestions: ["Send Content-Type: application/json"],
    });
  }
  const text = decode(await readBody(request, maxBytes));
  if (text === "") return {};
  let value: unknown;
  try {
    value = parseStrict(text, maxDepth);
  } catch (error) {
    throw new Fault("ParseError", (error as Error).message);
  }
  if (!isJsonObject(value)) throw new Fault("InvalidParams", "the body must be a JSON object");
  return value;
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) throw new Fault("TooLarge", `the body is over ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function decode(body: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    throw new Fault("ParseError", "the body is not UTF-8");
  }
}

class AdminConnection implements Evictable {
  readonly address: string;
  /** Requests with a credential that are under way. */
  underWay = 0;
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.address = socket.remoteAddress ?? "";
  }

  get busy(): boolean {
    return this.underWay > 0;
  }

  evict(): void {
    this.#socket.destroy();
  }
}

/** Bounds the connections of a server. Call the returned function for each request whose credential was accepted. */
export function boundConnections(
  server: Server,
  max: number,
): (request: IncomingMessage, response: ServerResponse) => void {
  const connections = new Connections<AdminConnection>(max);
  const bySocket = new WeakMap<Socket, AdminConnection>();
  server.on("connection", (socket: Socket) => {
    const connection = new AdminConnection(socket);
    if (!connections.admit(connection)) return void socket.destroy();
    bySocket.set(socket, connection);
    socket.on("close", () => connections.remove(connection));
  });
  return (request, response) => {
    const connection = bySocket.get(request.socket);
    if (!connection) return;
    connections.completed(connection);
    connection.underWay++;
    response.once("close", () => connection.underWay--);
  };
}
