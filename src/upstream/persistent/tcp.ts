// A server at the other end of a socket, one text a line as on stdio.

import type { Socket } from "node:net";
import { readWithin } from "../../mcp/index.js";
import {
  serverUnavailable,
  type PersistentTransport,
  type PersistentTransportEvents,
} from "../../mcp/session/index.js";
import type { Dialer } from "../dialer.js";
import { UpstreamLineReader } from "./line-reader.js";
import { LineWriter } from "./line-writer.js";
import type { UpstreamContext } from "../types.js";

export class TcpTransport implements PersistentTransport {
  readonly #to: { readonly host: string; readonly port: number };
  readonly #dialer: Dialer;
  readonly #around: UpstreamContext;
  #socket: Socket | undefined;
  #writer: LineWriter | undefined;
  #closed = false;

  constructor(to: { readonly host: string; readonly port: number }, dialer: Dialer, around: UpstreamContext) {
    this.#to = to;
    this.#dialer = dialer;
    this.#around = around;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const { limits, server, budget, share } = this.#around;
    const socket = await this.#dialer.connect({ ...this.#to, tls: false });
    this.#socket = socket;
    if (this.#closed) {
      socket.destroy();
      throw serverUnavailable(server, "it has been stopped");
    }
    const reader = new UpstreamLineReader(limits.maxMessageBytes, events, budget);
    let why = "it closed the connection";
    socket.on("data", (chunk: Buffer) => readWithin(share, socket, chunk.length, () => reader.push(chunk)));
    socket.on("error", (error) => {
      why = error.message;
    });
    socket.on("close", () => {
      reader.stop();
      if (!this.#closed) events.closed(why);
      this.#closed = true;
    });
    this.#writer = new LineWriter(socket, {
      maxUnsentBytes: limits.maxUnsentBytes,
      toFault: () => serverUnavailable(server, "it does not read what is sent to it"),
    });
  }

  send(text: string): void {
    if (this.#writer === undefined || this.#closed) throw serverUnavailable(this.#around.server, "it is not connected");
    this.#writer.send(text);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#socket?.destroy();
  }
}
