// A server at the other end of a socket, one text a line as on stdio.

import type { Socket } from "node:net";
import type { Dialer } from "../dialer.js";
import { unavailable } from "../faults.js";
import type { Surroundings } from "../pending.js";
import { LineReader } from "./line-reader.js";
import { LineWriter } from "./line-writer.js";
import type { Wire, WireEvents } from "./wire.js";

export class TcpWire implements Wire {
  readonly #to: { readonly host: string; readonly port: number };
  readonly #dialer: Dialer;
  readonly #around: Surroundings;
  #socket: Socket | undefined;
  #writer: LineWriter | undefined;
  #closed = false;

  constructor(to: { readonly host: string; readonly port: number }, dialer: Dialer, around: Surroundings) {
    this.#to = to;
    this.#dialer = dialer;
    this.#around = around;
  }

  async open(events: WireEvents): Promise<void> {
    const { limits, server, budget } = this.#around;
    const socket = await this.#dialer.connect({ ...this.#to, tls: false });
    this.#socket = socket;
    if (this.#closed) {
      socket.destroy();
      throw unavailable(server, "it has been stopped");
    }
    const reader = new LineReader(limits.maxMessageBytes, events, budget);
    let why = "it closed the connection";
    socket.on("data", (chunk: Buffer) => reader.push(chunk));
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
      toFault: () => unavailable(server, "it does not read what is sent to it"),
    });
  }

  send(text: string): void {
    if (this.#writer === undefined || this.#closed) throw unavailable(this.#around.server, "it is not connected");
    this.#writer.send(text);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#socket?.destroy();
  }
}
