// Connections of the admin port. Idle connections, unfinished requests and requests without a credential make room for
// new ones, so they can never keep an operator out.

import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Connections, type Evictable } from "../mcp/transports/index.js";

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

/** Bounds the connections of a server. The answer is to be called for each request whose credential was accepted. */
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
