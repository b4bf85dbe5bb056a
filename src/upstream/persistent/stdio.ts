// A server as a child process, one text a line.

import { setTimeout as sleep } from "node:timers/promises";
import { readWithin } from "../../mcp/index.js";
import {
  serverUnavailable,
  type PersistentTransport,
  type PersistentTransportEvents,
} from "../../mcp/session/index.js";
import type { ProcessFacts } from "../connection.js";
import { ServerProcess } from "../process/server-process.js";
import type { StdioTarget, UpstreamContext } from "../types.js";
import { UpstreamLineReader } from "./line-reader.js";
import { LineWriter } from "./line-writer.js";

/** What a server wrote before it ended may still be in the pipe; but a grandchild may hold the pipe open for ever. */
const LAST_OUTPUT_MS = 200;

export class StdioTransport implements PersistentTransport {
  readonly #target: StdioTarget;
  readonly #around: UpstreamContext;
  #server: ServerProcess | undefined;
  #writer: LineWriter | undefined;
  #closed = false;

  constructor(target: StdioTarget, around: UpstreamContext) {
    this.#target = target;
    this.#around = around;
  }

  get process(): ProcessFacts | undefined {
    return this.#server;
  }

  async open(events: PersistentTransportEvents): Promise<void> {
    const { limits, timeouts, server, budget, share } = this.#around;
    const { leaveMs, graceMs } = timeouts;
    const started = await ServerProcess.start(this.#target, {
      leaveMs,
      graceMs,
      stderrBytes: limits.stderrBytes,
      share,
    });
    this.#server = started;
    const reader = new UpstreamLineReader(limits.maxMessageBytes, events, budget);
    started.stdout.on("data", (chunk: Buffer) => {
      if (!this.#closed) readWithin(share, started.stdout, chunk.length, () => reader.push(chunk));
    });
    started.stdout.once("close", () => reader.stop());
    this.#writer = new LineWriter(started.stdin, {
      maxUnsentBytes: limits.maxUnsentBytes,
      toFault: () => serverUnavailable(server, `it does not read what is sent to it`),
    });
    void this.#watch(started, events);
    if (this.#closed) await started.stop();
  }

  send(text: string): void {
    if (this.#writer === undefined || this.#closed) throw serverUnavailable(this.#around.server, "it has been stopped");
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
