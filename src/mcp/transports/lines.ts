import type { Readable, Writable } from "node:stream";
import type { ByteBudget } from "../index.js";
import { ByteStore, decodeUtf8, headOf } from "./bytes.js";
import { ServerChannel } from "./channel.js";
import { ClientLink, type Port } from "./outbox.js";
import type { ClientEvents, Malformed, Peer, ResolvedLimits, TransportHandler } from "./types.js";

const LF = 0x0a;
const CR = 0x0d;
const BOM = [0xef, 0xbb, 0xbf] as const;

interface LineEvents {
  line(text: string): void;
  malformed(problem: Malformed): void;
}

export class LineReader {
  /** Of one line; raised when the peer has authenticated. */
  maxBytes: number;
  readonly #events: LineEvents;
  readonly #held: ByteStore;
  /** Inside a line that was given up: bytes are dropped until the next newline. */
  #skipping = false;
  #stopped = false;
  #atStart = true;

  constructor(maxBytes: number, events: LineEvents, budget?: ByteBudget) {
    this.maxBytes = maxBytes;
    this.#events = events;
    this.#held = new ByteStore(budget);
  }

  /** Bytes of the unfinished line. */
  get held(): number {
    return this.#held.length;
  }

  /** Charges the unfinished line to another budget from now on. */
  chargeTo(budget: ByteBudget): void {
    this.#held.charge.move(budget);
  }

  push(chunk: Buffer): void {
    let start = 0;
    while (start < chunk.length && !this.#stopped) {
      // Blank lines mean nothing, and a search for each of thousands of them would cost much.
      if (this.#isBetween) start = this.#afterBlankLines(chunk, start);
      if (start === chunk.length) return;
      const newline = chunk.indexOf(LF, start);
      const end = newline === -1 ? chunk.length : newline;
      if (this.#skipping) this.#skipping = newline === -1;
      else this.#take(chunk, start, end, newline !== -1);
      start = end + 1;
    }
  }

  /** The stream is over; a last line without its newline still counts. */
  end(): void {
    if (!this.#stopped && this.#held.length > 0) this.#deliver(this.#held.take());
    this.stop();
  }

  /** Nothing is delivered any more, even from a chunk being read. */
  stop(): void {
    this.#stopped = true;
    this.#held.clear();
  }

  #afterBlankLines(chunk: Buffer, start: number): number {
    let at = start;
    while (chunk[at] === LF || (chunk[at] === CR && chunk[at + 1] === LF)) at += chunk[at] === LF ? 1 : 2;
    if (at > start) this.#atStart = false;
    return at;
  }

  get #isBetween(): boolean {
    return this.#held.length === 0 && !this.#skipping;
  }

  #take(chunk: Buffer, start: number, end: number, complete: boolean): void {
    const length = this.#held.length + end - start;
    const lastByte = end > start ? chunk[end - 1] : this.#held.last();
    // A carriage return before the newline belongs to the framing, not to the text.
    const textLength = lastByte === CR ? length - 1 : length;
    const headNow = (): string => (this.#held.length > 0 ? this.#held.head() : headOf(chunk.subarray(start, end)));
    if (textLength > this.maxBytes) {
      this.#giveUp(complete, `a line is over the cap of ${this.maxBytes} bytes; it was dropped`, headNow());
    } else if (complete && this.#held.length === 0) {
      this.#deliver(chunk.subarray(start, end));
    } else if (!this.#held.append(chunk, start, end)) {
      this.#giveUp(
        complete,
        "too many unfinished messages at once; this line was dropped, send it again later",
        headNow(),
        "too-many",
      );
    } else if (complete) {
      this.#deliver(this.#held.take());
    }
  }

  #giveUp(complete: boolean, message: string, head: string, kind: Malformed["kind"] = "too-large"): void {
    this.#held.clear();
    this.#atStart = false;
    this.#skipping = !complete;
    this.#events.malformed({ kind, message, head });
  }

  #deliver(bytes: Buffer): void {
    let start = 0;
    let end = bytes.length;
    if (this.#atStart && BOM.every((byte, index) => bytes[index] === byte)) start = BOM.length;
    this.#atStart = false;
    if (end > start && bytes[end - 1] === CR) end--;
    if (end === start) return;
    const text = decodeUtf8(bytes.subarray(start, end));
    if (text !== undefined) this.#events.line(text);
    else {
      const head = headOf(bytes.subarray(start, end));
      this.#events.malformed({ kind: "not-utf8", message: "a line is not valid UTF-8; it was dropped", head });
    }
  }
}

/**
 * The text as one line with its newline. In JSON a raw line break can only stand between tokens, so a space means the
 * same; in anything else it must not start a second message.
 */
export function toLine(text: string | Buffer): Buffer {
  if (typeof text === "string") return lineOf(withoutBreaks(text));
  if (!text.includes(LF) && !text.includes(CR)) return Buffer.concat([text, NEWLINE]);
  return Buffer.from(`${withoutBreaks(text.toString("utf8"))}\n`);
}

/** Joining a long text with its newline would copy it once more than needed. */
const LONG_TEXT = 64 * 1024;

function lineOf(text: string): Buffer {
  if (text.length < LONG_TEXT) return Buffer.from(`${text}\n`);
  const length = Buffer.byteLength(text);
  const line = Buffer.allocUnsafe(length + 1);
  line.write(text, "utf8");
  line[length] = LF;
  return line;
}

const NEWLINE = Buffer.from("\n");

function withoutBreaks(text: string): string {
  return text.includes("\n") || text.includes("\r") ? text.replace(/[\r\n]+/g, " ") : text;
}

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

interface LineChannelOptions {
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
  /** Called with each text before the handler, and with undefined for what is not text; false drops the peer. */
  accept?: (text: string | undefined) => boolean;
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
      malformed: (problem) => {
        if (problem.kind !== "not-utf8" || accept === undefined || accept(undefined)) channel.receiveMalformed(problem);
        else channel.cut();
      },
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

/** The owner of the streams tells the link when the connection is gone, because only it knows why. */
export function linkLines(input: Readable, output: Writable, events: ClientEvents, limits: ResolvedLimits): ClientLink {
  const link = new ClientLink(new StreamPort(input, output), events, limits);
  const reader = new LineReader(limits.maxMessageBytes, {
    line: (text) => link.receive(text),
    malformed: (problem) => link.receiveMalformed(problem),
  });
  input.on("data", (chunk: Buffer) => reader.push(chunk));
  input.on("end", () => reader.end());
  return link;
}
