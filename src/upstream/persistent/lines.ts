// One text a line. Whatever bytes arrive, at most one message is held; of a line that is too long both ends are kept,
// because they usually say whose answer it was.

import { isUtf8 } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { type ByteBudget, readWithin } from "../../mcp/index.js";
import { serverUnavailable, type UnsentLimit } from "../../mcp/session/index.js";
import { ByteStore } from "../../mcp/transports/index.js";
import type { UpstreamContext } from "../types.js";

const LF = 0x0a;
const CR = 0x0d;
const ENDS = 256;
const EMPTY = Buffer.alloc(0);

export interface UpstreamLineEvents {
  message(text: string): void;
  malformed(why: string): void;
  oversized(hint: string): void;
}

export class UpstreamLineReader {
  readonly #maxBytes: number;
  readonly #events: UpstreamLineEvents;
  /** Bytes are copied: keeping the pieces would cost a hundred times what a server sends byte by byte. */
  readonly #held: ByteStore;
  /** Of a line that was given up: its beginning and its end. */
  #head: string | undefined;
  #tail: Buffer = EMPTY;

  /** The unfinished line is charged to `budget`. A line that it does not allow is given up like one that is too long. */
  constructor(maxBytes: number, events: UpstreamLineEvents, budget?: ByteBudget) {
    this.#maxBytes = maxBytes;
    this.#events = events;
    this.#held = new ByteStore(budget);
  }

  /** The connection has ended: the unfinished line is dropped. */
  stop(): void {
    this.#clear();
  }

  push(chunk: Buffer): void {
    let start = this.#isBetween ? afterBreaks(chunk, 0) : 0;
    for (let end = chunk.indexOf(LF, start); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#endLine(chunk.subarray(start, end));
      // A search for each of thousands of blank lines would cost far more.
      start = afterBreaks(chunk, end + 1);
    }
    if (start < chunk.length) this.#hold(start === 0 ? chunk : chunk.subarray(start));
  }

  get #isBetween(): boolean {
    return this.#held.length === 0 && this.#head === undefined;
  }

  #endLine(last: Buffer): void {
    if (this.#head === undefined && this.#held.length + last.length <= this.#maxBytes) {
      if (this.#held.length === 0) return this.#deliver(last);
      if (this.#held.append(last)) return this.#deliver(this.#held.take());
    }
    this.#hold(last);
    const hint = `${this.#head} ${this.#tail.toString("latin1")}`;
    this.#clear();
    this.#events.oversized(hint);
  }

  #hold(part: Buffer): void {
    const fits = this.#head === undefined && this.#held.length + part.length <= this.#maxBytes;
    if (fits && this.#held.append(part)) return;
    if (this.#head === undefined) {
      const begun = Buffer.concat([this.#held.take().subarray(0, ENDS), part.subarray(0, ENDS)]);
      this.#head = begun.toString("latin1", 0, ENDS);
    }
    const end = part.length >= ENDS ? part : Buffer.concat([this.#tail, part]);
    this.#tail = Buffer.from(end.subarray(Math.max(0, end.length - ENDS)));
  }

  #clear(): void {
    this.#held.clear();
    this.#head = undefined;
    this.#tail = EMPTY;
  }

  #deliver(line: Buffer): void {
    const end = line.length > 0 && line[line.length - 1] === CR ? line.length - 1 : line.length;
    if (end === 0) return;
    const text = end === line.length ? line : line.subarray(0, end);
    if (isUtf8(text)) this.#events.message(text.toString("utf8"));
    else this.#events.malformed("a line is not valid UTF-8");
  }
}

/** Where the next line begins: line breaks before a text mean nothing. */
function afterBreaks(chunk: Buffer, from: number): number {
  let at = from;
  while (chunk[at] === LF || chunk[at] === CR) at++;
  return at;
}

// Texts out, one a line. What is sent in one turn of the loop goes out in one write.

export class LineWriter {
  readonly #output: Writable;
  readonly #limit: UnsentLimit;
  #waiting = "";

  constructor(output: Writable, limit: UnsentLimit) {
    this.#output = output;
    this.#limit = limit;
  }

  send(text: string): void {
    if (this.#output.writableLength + this.#waiting.length > this.#limit.maxUnsentBytes) throw this.#limit.toFault();
    if (this.#waiting === "") setImmediate(this.#flush);
    // In JSON a raw line break can only stand between tokens; here it would start a second message.
    const line = text.includes("\n") || text.includes("\r") ? text.replace(/[\r\n]+/g, " ") : text;
    this.#waiting += `${line}\n`;
  }

  readonly #flush = (): void => {
    const text = this.#waiting;
    this.#waiting = "";
    if (this.#output.writable) this.#output.write(text);
  };
}

/**
 * `openLines` reads messages from `input` within the bounds of the context until `isClosed`, and returns the writer of
 * messages to `output`.
 */
export function openLines(
  input: Readable,
  output: Writable,
  events: UpstreamLineEvents,
  { limits, server, budget, share }: UpstreamContext,
  isClosed: () => boolean,
): LineWriter {
  const reader = new UpstreamLineReader(limits.maxMessageBytes, events, budget);
  input.on("data", (chunk: Buffer) => {
    if (!isClosed()) readWithin(share, input, chunk.length, () => reader.push(chunk));
  });
  input.once("close", () => reader.stop());
  return new LineWriter(output, {
    maxUnsentBytes: limits.maxUnsentBytes,
    toFault: () => serverUnavailable(server, "it does not read what is sent to it"),
  });
}
