// Lines over a pair of byte streams, serving side: what stdio and TCP have in common.

import type { Readable, Writable } from "node:stream";
import type { ByteBudget } from "../index.js";
import { ServerChannel } from "./channel.js";
import { LineReader, toLine } from "./frames.js";
import type { ResolvedLimits } from "./limits.js";
import type { Port } from "./outbox.js";
import type { TransportHandler, Peer } from "./types.js";

type Write = (bytes: Buffer, taken: () => void) => void;

export class StreamPort implements Port {
  readonly #input: Readable;
  readonly #output: Writable;
  readonly #write: Write;

  constructor(input: Readable, output: Writable, write: Write = output.write.bind(output)) {
    this.#input = input;
    this.#output = output;
    this.#write = write;
  }

  get waiting(): number {
    return this.#output.writableLength;
  }
  write(text: string | Buffer, taken: () => void): void {
    if (this.#output.writable) this.#write(toLine(text), taken);
  }
  pause(): void {
    this.#input.pause();
  }
  resume(): void {
    this.#input.resume();
  }
  end(): void {
    this.#output.end();
  }
  destroy(): void {
    this.#output.destroy();
    this.#input.destroy();
  }
}

export interface LineChannelOptions {
  peer: Peer;
  handler: TransportHandler;
  limits: ResolvedLimits;
  budget: ByteBudget;
  /** After the peer has said its last word, exchanges under way may take this long. */
  lingerMs: number;
  /** Whether there is room for this channel; false drops the peer before the handler hears of it. */
  admit?: (channel: ServerChannel) => boolean;
  /** A message has begun to arrive. */
  unfinished?: (channel: ServerChannel) => void;
  /** Looks at each text before the handler does; false drops the peer. */
  accept?: (text: string) => boolean;
  /** The way to write and to close, where it is not the plain one. */
  port?: Port;
}

export function serveLines(input: Readable, output: Writable, options: LineChannelOptions): ServerChannel {
  const { limits, accept, lingerMs } = options;
  const port = options.port ?? new StreamPort(input, output);
  const channel = new ServerChannel(options.peer, port, options.handler, limits);
  let partialSince = 0;
  const reader = new LineReader(
    channel.maxBytes,
    {
      line: (text) => {
        partialSince = 0;
        if (accept === undefined || accept(text)) channel.receive(text);
        else channel.cut();
      },
      malformed: (problem) => channel.receiveMalformed(problem),
    },
    options.budget,
  );
  if (options.admit?.(channel) === false) {
    channel.cut();
    return channel;
  }
  channel.onAdmitted = (budget) => {
    reader.maxBytes = channel.maxBytes;
    if (budget) reader.chargeTo(budget);
  };
  const admission = options.handler.admit?.(options.peer);
  if (admission instanceof Promise) {
    input.pause();
    void admission.then((known) => {
      channel.admit(known);
      if (!channel.closed) input.resume();
    });
  } else if (admission) channel.admit(admission);
  const gone = () => channel.gone();
  channel.onClose(() => reader.stop());
  input.on("data", (chunk: Buffer) => {
    reader.push(chunk);
    if (reader.held === 0) partialSince = 0;
    else if (partialSince === 0) {
      partialSince = performance.now();
      options.unfinished?.(channel);
    }
  });
  channel.onSweep = (now) => {
    if (partialSince > 0 && now - partialSince > limits.bodyMs) channel.cut();
  };
  input.on("end", () => {
    reader.end();
    if (channel.closed) return;
    // The peer may only have finished sending (a pipe that ran dry), or be gone for good: the answers under way get
    // their chance, but not for ever.
    const timer = setTimeout(() => channel.close("the peer has gone"), lingerMs);
    channel.onClose(() => clearTimeout(timer));
    channel.closeWhenQuiet();
  });
  input.on("error", gone);
  input.on("close", () => {
    if (!input.readableEnded) channel.cut();
  });
  output.on("error", () => channel.cut());
  output.on("close", gone);
  options.handler.connected?.(channel);
  return channel;
}
