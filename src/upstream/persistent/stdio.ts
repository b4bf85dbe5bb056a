// A server as a child process, one text a line.

import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type PersistentTransport,
  type PersistentTransportEvents,
  serverUnavailable,
} from "../../mcp/session/index.js";
import type { Dialer } from "../dialer.js";
import { ServerProcess } from "../process/server-process.js";
import type { ProcessFacts, StdioTarget, UpstreamContext } from "../types.js";
import { type LineWriter, openLines } from "./lines.js";

/** What a server wrote before it ended may still be in the pipe; but a grandchild may hold the pipe open for ever. */
const LAST_OUTPUT_MS = 200;

export class StdioTransport implements PersistentTransport {
  readonly #target: StdioTarget;
  readonly #context: UpstreamContext;
  #server: ServerProcess | undefined;
  #writer: LineWriter | undefined;
  #closed = false;

  constructor(target: StdioTarget, context: UpstreamContext) {
    this.#target = target;
    this.#context = context;
  }

  get process(): ProcessFacts | undefined {
    return this.#server;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const { limits, timeouts, share } = this.#context;
    const started = await ServerProcess.start(this.#target, { ...timeouts, stderrBytes: limits.stderrBytes, share });
    this.#server = started;
    this.#writer = openLines(started.stdout, started.stdin, events, this.#context, () => this.#closed);
    void this.#watch(started, events);
    if (this.#closed) await started.stop();
  }

  send(text: string): void {
    if (this.#writer === undefined || this.#closed)
      throw serverUnavailable(this.#context.server, "it has been stopped");
    this.#writer.send(text);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#server?.stop();
  }

  async #watch(started: ServerProcess, events: PersistentTransportEvents): Promise<void> {
    let how = "it closed its output";
    const ended = started.ended.then((outcome) => {
      how = `it ended (${outcome})`;
    });
    const silent = new Promise<void>((resolve) => started.stdout.once("close", resolve));
    await Promise.race([ended, silent]);
    await Promise.race([Promise.all([ended, silent]), sleep(LAST_OUTPUT_MS, undefined, { ref: false })]);
    if (this.#closed) return;
    this.#closed = true;
    events.closed(how);
    await started.stop().catch(() => {});
  }
}

// A server at the other end of a socket, one text a line as on stdio.

export class TcpTransport implements PersistentTransport {
  readonly #to: { readonly host: string; readonly port: number };
  readonly #dialer: Dialer;
  readonly #context: UpstreamContext;
  #socket: Socket | undefined;
  #writer: LineWriter | undefined;
  #closed = false;

  constructor(to: { readonly host: string; readonly port: number }, dialer: Dialer, context: UpstreamContext) {
    this.#to = to;
    this.#dialer = dialer;
    this.#context = context;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const socket = await this.#dialer.connect({ ...this.#to, tls: false });
    this.#socket = socket;
    if (this.#closed) {
      socket.destroy();
      throw serverUnavailable(this.#context.server, "it has been stopped");
    }
    let why = "it closed the connection";
    this.#writer = openLines(socket, socket, events, this.#context, () => this.#closed);
    socket.on("error", (error) => {
      why = error.message;
    });
    socket.on("close", () => {
      if (!this.#closed) events.closed(why);
      this.#closed = true;
    });
  }

  send(text: string): void {
    if (this.#writer === undefined || this.#closed)
      throw serverUnavailable(this.#context.server, "it is not connected");
    this.#writer.send(text);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#socket?.destroy();
  }
}
