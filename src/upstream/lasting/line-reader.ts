// One text a line. Whatever bytes arrive, at most one message is held; of a line that is too long both ends are kept,
// because they usually say whose answer it was.

import { isUtf8 } from "node:buffer";

const LF = 0x0a;
const CR = 0x0d;
const ENDS = 256;
const EMPTY = Buffer.alloc(0);

export interface LineEvents {
  message(text: string): void;
  malformed(why: string): void;
  oversized(hint: string): void;
}

export class LineReader {
  readonly #maxBytes: number;
  readonly #events: LineEvents;
  #parts: Buffer[] = [];
  #length = 0;
  /** Of a line that was given up: how it began and how it goes on. */
  #head: string | undefined;
  #tail: Buffer = EMPTY;

  constructor(maxBytes: number, events: LineEvents) {
    this.#maxBytes = maxBytes;
    this.#events = events;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#endLine(chunk.subarray(start, end));
      start = end + 1;
    }
    if (start < chunk.length) this.#hold(start === 0 ? chunk : chunk.subarray(start));
  }

  #endLine(last: Buffer): void {
    if (this.#head === undefined && this.#length + last.length <= this.#maxBytes) {
      const line = this.#length === 0 ? last : Buffer.concat([...this.#parts, last]);
      this.#clear();
      this.#deliver(line);
      return;
    }
    this.#hold(last);
    const hint = `${this.#head} ${this.#tail.toString("latin1")}`;
    this.#clear();
    this.#events.oversized(hint);
  }

  #hold(part: Buffer): void {
    if (this.#head === undefined && this.#length + part.length <= this.#maxBytes) {
      // Many small parts cost more than their bytes, so they are joined now and then.
      this.#parts.push(part);
      this.#length += part.length;
      if (this.#parts.length >= 1_024) this.#parts = [Buffer.concat(this.#parts)];
      return;
    }
    if (this.#head === undefined) {
      const begun = Buffer.concat([...this.#parts, part.subarray(0, ENDS)]);
      this.#head = begun.toString("latin1", 0, ENDS);
      this.#parts = [];
    }
    const end = part.length >= ENDS ? part : Buffer.concat([this.#tail, part]);
    this.#tail = Buffer.from(end.subarray(Math.max(0, end.length - ENDS)));
  }

  #clear(): void {
    this.#parts = [];
    this.#length = 0;
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
