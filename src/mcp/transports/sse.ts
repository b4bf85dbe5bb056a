// Server-sent events: writing them, and reading them from any bytes with bounded memory.

import { type ByteBudget, Charge } from "../index.js";
import { ByteStore, decodeUtf8 } from "./bytes.js";
import { TransportError } from "./types.js";

const LF = 0x0a;
const CR = 0x0d;
const MAX_LINES_APART = 1_024;
/** Longest id or type of an event. */
const MAX_ID_CHARS = 4_096;
const BREAKS = /\r\n|\r|\n/g;

/** One event with the text as its data; a text of several lines becomes several data lines. */
export function formatEvent(text: string, eventId?: string): string {
  const data = text.includes("\n") || text.includes("\r") ? text.replace(BREAKS, "\ndata: ") : text;
  if (eventId === undefined) return `event: message\ndata: ${data}\n\n`;
  if (/[\r\n\0]/.test(eventId)) throw new TypeError("an event id cannot contain a line break or NUL");
  return `event: message\nid: ${eventId}\ndata: ${data}\n\n`;
}

export const HEARTBEAT = ":\n\n";

export function formatRetry(retryMs: number): string {
  return `retry: ${Math.max(0, Math.round(retryMs))}\n\n`;
}

interface SseEvents {
  event(data: string, id: string | undefined): void;
  /** An event of another type than `message`. */
  other?(type: string, data: string): void;
}

/** Reads an event stream as the HTML standard says, of which MCP uses `data`, `id`, `retry` and the type `message`. */
export class SseReader {
  lastEventId: string | undefined;
  retryMs: number | undefined;
  readonly #maxBytes: number;
  readonly #events: SseEvents;
  readonly #held: ByteStore;
  /** The lines of the event so far. */
  readonly #charge: Charge;
  /** The lines of the event so far, and the last of them one by one. */
  #joined: string[] = [];
  #data: string[] = [];
  #dataBytes = 0;
  #type = "";
  /** The id of the event being read; undefined when it has none of its own. */
  #id: string | undefined;
  #afterCr = false;
  #atStart = true;

  /** The unfinished event is charged to `budget`. */
  constructor(maxBytes: number, events: SseEvents, budget?: ByteBudget) {
    this.#maxBytes = maxBytes;
    this.#events = events;
    this.#held = new ByteStore(budget);
    this.#charge = new Charge(budget);
  }

  /** The stream has ended: the unfinished event is dropped. */
  stop(): void {
    this.#held.clear();
    this.#charge.set(0);
    this.#data = [];
    this.#joined = [];
  }

  /** Throws a TransportError when an event is over the cap or not UTF-8: the rest of the stream is then worthless. */
  push(chunk: Buffer): void {
    let start = 0;
    // Looked up once a chunk: searching it again for every line would make a chunk of many lines quadratic.
    let cr = chunk.indexOf(CR);
    while (start < chunk.length) {
      if (this.#afterCr) {
        this.#afterCr = false;
        if (chunk[start] === LF && ++start === chunk.length) return;
      }
      if (cr !== -1 && cr < start) cr = chunk.indexOf(CR, start);
      const lf = chunk.indexOf(LF, start);
      const end = cr === -1 ? lf : lf === -1 ? cr : Math.min(cr, lf);
      if (end === -1) {
        this.#hold(chunk, start, chunk.length);
        return;
      }
      this.#endLine(chunk, start, end);
      this.#afterCr = chunk[end] === CR;
      start = end + 1;
    }
  }

  #hold(chunk: Buffer, start: number, end: number): void {
    if (this.#dataBytes + this.#held.length + end - start > this.#maxBytes + FIELD_NAME_BYTES) {
      throw new TransportError("too-large", `the server sent an event over the cap of ${this.#maxBytes} bytes`);
    }
    if (!this.#held.append(chunk, start, end)) throw overBudget();
  }

  #endLine(chunk: Buffer, start: number, end: number): void {
    let bytes: Buffer;
    if (this.#held.length === 0) {
      bytes = chunk.subarray(start, end);
    } else {
      this.#hold(chunk, start, end);
      bytes = this.#held.take();
    }
    let line = decodeUtf8(bytes);
    if (line === undefined) throw new TransportError("not-utf8", "the server sent an event that is not valid UTF-8");
    if (this.#atStart && line.startsWith("\uFEFF")) line = line.slice(1);
    this.#atStart = false;
    if (line === "") this.#dispatch();
    else this.#field(line, bytes.length);
  }

  #field(line: string, bytes: number): void {
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (name) {
      case "data":
        this.#dataBytes += bytes - (line.length - value.length) + (this.#data.length + this.#joined.length > 0 ? 1 : 0);
        if (this.#dataBytes > this.#maxBytes) {
          throw new TransportError("too-large", `the server sent an event over the cap of ${this.#maxBytes} bytes`);
        }
        if (!this.#charge.set(2 * this.#dataBytes)) throw overBudget();
        this.#data.push(value);
        // An event of many short lines would cost many times its bytes.
        if (this.#data.length >= MAX_LINES_APART) this.#join();
        break;
      case "event":
        this.#type = value.slice(0, MAX_ID_CHARS);
        break;
      case "id":
        if (!value.includes("\0") && value.length <= MAX_ID_CHARS) this.#id = value;
        break;
      case "retry":
        if (/^\d{1,9}$/.test(value)) this.retryMs = Number(value);
        break;
      default:
      // A comment (its name is empty) or a field of a later day.
    }
  }

  #join(): void {
    // Written out: a joined text keeps its parts until it is looked at.
    this.#joined.push(Buffer.from(this.#data.join("\n")).toString());
    this.#data = [];
  }

  #dispatch(): void {
    if (this.#joined.length > 0) {
      this.#data = [...this.#joined, ...this.#data];
      this.#joined = [];
    }
    const data = this.#data.length === 1 ? (this.#data[0] as string) : this.#data.join("\n");
    const id = this.#id;
    const type = this.#type;
    this.#data = [];
    this.#dataBytes = 0;
    this.#charge.set(0);
    this.#type = "";
    this.#id = undefined;
    if (id !== undefined) this.lastEventId = id;
    if (data === "") return;
    if (type === "" || type === "message") this.#events.event(data, id);
    else this.#events.other?.(type, data);
  }
}

/** `data: ` before the text of an event. */
const FIELD_NAME_BYTES = 6;

function overBudget(): TransportError {
  return new TransportError("too-large", "the server has sent too many events that are not complete");
}
