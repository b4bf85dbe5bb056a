// One HTTP/1.1 answer after the other, out of the bytes of a connection. Strict where it decides about the end of an
// answer: two lengths, a length beside chunks, folded lines, bare line feeds and unknown codings are errors.

import type { AnswerHeaders } from "./http1.js";

const MAX_HEAD_BYTES = 16 * 1024;
const MAX_TRAILER_BYTES = 16 * 1024;
const MAX_SIZE_LINE_BYTES = 4 * 1024;
const MAX_INTERIM = 16;
const CR = 13;
const LF = 10;
const END_OF_HEAD = Buffer.from("\r\n\r\n");

type Framing = "length" | "chunked" | "until-close";

/** What a head says. The same one comes with many answers, so the last one is kept. */
interface Head {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly framing: Framing;
  readonly length: number;
  readonly keepsOpen: boolean;
  readonly keepAliveMs: number | undefined;
}

type State = "head" | "data" | "chunk-size" | "chunk-end" | "trailer" | "over";

export class ResponseReader {
  /** The next bytes of the body, when `readBody` found some. */
  part: Buffer | undefined = undefined;
  #head: Head | undefined = undefined;
  #lastText = "";
  #last: Head | undefined = undefined;
  #state: State = "over";
  #isHead = false;
  #interim = 0;
  /** A head that has come in part. */
  #pending: Buffer | undefined = undefined;
  #pendingLength = 0;
  /** Of the body, or of the chunk. */
  #left = 0;
  #lineBytes = 0;
  #digits = 0;
  #isExtension = false;
  #sawCr = false;

  get hasHead(): boolean {
    return this.#head !== undefined;
  }
  get status(): number {
    return this.#head?.status ?? 0;
  }
  get headers(): AnswerHeaders {
    return this.#head?.headers ?? {};
  }
  get isOver(): boolean {
    return this.#state === "over";
  }
  /** The answer is over when the connection is. */
  get endsWithConnection(): boolean {
    return this.#state === "data" && this.#head?.framing === "until-close";
  }
  get keepsOpen(): boolean {
    return this.#head?.keepsOpen === true;
  }
  /** How long the server keeps an idle connection, where it says so. */
  get keepAliveMs(): number | undefined {
    return this.#head?.keepAliveMs;
  }

  /** The next answer is one to HEAD, which has no body, or to something else. */
  begin(isHead: boolean): void {
    this.#head = undefined;
    this.#isHead = isHead;
    this.#interim = 0;
    this.#state = "head";
  }

  /** Reads the head out of what came; answers where the body begins. Without the whole head there is none yet. */
  readHead(chunk: Buffer): number {
    let from = 0;
    while (this.#head === undefined) {
      let text: string;
      const before = this.#pendingLength;
      const end = before === 0 ? chunk.indexOf(END_OF_HEAD, from) : this.#endWith(chunk, from);
      if (end === -1) {
        if (before === 0) this.#keep(chunk, from);
        return chunk.length;
      }
      if (before === 0) {
        text = chunk.toString("latin1", from, end);
        from = end + END_OF_HEAD.length;
      } else {
        text = (this.#pending as Buffer).toString("latin1", 0, end);
        // The rest of the end is in this piece.
        from += end + END_OF_HEAD.length - before;
        this.#pending = undefined;
        this.#pendingLength = 0;
      }
      this.#take(text);
    }
    return from;
  }

  /** Where the head ends that began in earlier pieces, counted from its beginning; -1 where it is not here yet. */
  #endWith(chunk: Buffer, from: number): number {
    // The end may have begun before.
    const search = Math.max(0, this.#pendingLength - END_OF_HEAD.length + 1);
    const isAll = this.#keep(chunk, from);
    const end = (this.#pending as Buffer).subarray(0, this.#pendingLength).indexOf(END_OF_HEAD, search);
    if (end === -1 && !isAll) throw tooLongHead();
    return end;
  }

  /** False where not all of it may belong to a head. */
  #keep(chunk: Buffer, from: number): boolean {
    this.#pending ??= Buffer.allocUnsafe(MAX_HEAD_BYTES);
    const room = MAX_HEAD_BYTES - this.#pendingLength;
    if (this.#pendingLength === 0 && chunk.length - from > room) throw tooLongHead();
    const copied = chunk.copy(this.#pending, this.#pendingLength, from, from + room);
    this.#pendingLength += copied;
    return copied === chunk.length - from;
  }

  #take(text: string): void {
    if (text.length > MAX_HEAD_BYTES) throw tooLongHead();
    const head = text === this.#lastText ? (this.#last as Head) : readHead(text);
    this.#lastText = text;
    this.#last = head;
    if (head.status >= 200) {
      this.#head = head;
      return this.#beginBody(head);
    }
    if (head.status === 101) throw new Error("it answered 101, but no upgrade was asked for");
    if (++this.#interim > MAX_INTERIM) throw new Error("it sends interim answers without end");
  }

  #beginBody({ framing, length, status }: Head): void {
    this.#left = length;
    const isBodiless = this.#isHead || status === 204 || status === 304;
    if (isBodiless || (framing === "length" && length === 0)) {
      this.#state = "over";
    } else if (framing === "chunked") this.#beginLine("chunk-size");
    else this.#state = "data";
  }

  #beginLine(state: "chunk-size" | "chunk-end" | "trailer"): void {
    this.#state = state;
    this.#left = state === "chunk-size" ? 0 : this.#left;
    this.#lineBytes = this.#digits = 0;
    this.#isExtension = this.#sawCr = false;
  }

  /** Reads on from `at` until there is a part of the body, the answer is over, or the bytes are; answers where it stopped. */
  readBody(bytes: Buffer, at: number): number {
    this.part = undefined;
    let next = at;
    while (next < bytes.length && this.#state !== "over") {
      if (this.#state === "data") return this.#readData(bytes, next);
      this.#readByte(bytes[next++] as number);
    }
    return next;
  }

  #readData(bytes: Buffer, at: number): number {
    const framing = (this.#head as Head).framing;
    const end = framing === "until-close" ? bytes.length : Math.min(bytes.length, at + this.#left);
    this.part = at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end);
    this.#left -= end - at;
    if (this.#left === 0 && framing === "length") this.#state = "over";
    else if (this.#left === 0 && framing === "chunked") this.#beginLine("chunk-end");
    return end;
  }

  /** One byte of the lines around chunks. */
  #readByte(byte: number): void {
    if (this.#sawCr) {
      if (byte !== LF) throw badChunk();
      return this.#endLine();
    }
    if (byte === CR) {
      this.#sawCr = true;
      return;
    }
    if (byte === LF || this.#state === "chunk-end") throw badChunk();
    this.#lineBytes++;
    if (this.#state === "trailer") {
      if (this.#lineBytes > MAX_TRAILER_BYTES) throw badChunk();
      return;
    }
    if (this.#lineBytes > MAX_SIZE_LINE_BYTES) throw badChunk();
    if (this.#isExtension) return;
    const digit = hexDigit(byte);
    if (digit === -1) {
      // `;` begins an extension, which says nothing about the size; spaces before it are tolerated by every reader.
      if (this.#digits === 0 || (byte !== 0x3b && byte !== 0x20 && byte !== 0x09)) throw badChunk();
      this.#isExtension = true;
      return;
    }
    // Sizes beyond 2^48 are not serious.
    if (++this.#digits > 12) throw badChunk();
    this.#left = this.#left * 16 + digit;
  }

  #endLine(): void {
    if (this.#state === "chunk-end") return this.#beginLine("chunk-size");
    if (this.#state === "chunk-size") {
      if (this.#digits === 0) throw badChunk();
      if (this.#left === 0) this.#beginLine("trailer");
      else this.#state = "data";
      return;
    }
    // A trailer is dropped: nothing in it was asked for. An empty line ends it.
    if (this.#lineBytes === 0) this.#state = "over";
    else this.#beginLine("trailer");
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

function badChunk(): Error {
  return new Error("the chunks of its answer are not well formed");
}

function tooLongHead(): Error {
  return new Error(`the head of its answer is over ${MAX_HEAD_BYTES} bytes`);
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const LENGTH = /^\d{1,15}$/;

/** Of these the first one counts, as for Node; of others all are kept. */
const FIRST_COUNTS: ReadonlySet<string> = new Set(["content-type", "location", "retry-after"]);

function readHead(text: string): Head {
  const [first = "", ...lines] = text.split("\r\n");
  const [, minor, code] = STATUS_LINE.exec(first) ?? [];
  if (code === undefined) throw new Error("its answer does not begin as an HTTP answer does");
  const headers: Record<string, string | string[] | undefined> = Object.create(null);
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    if (!FIELD_NAME.test(name) || !FIELD_VALUE.test(line)) throw new Error("a header of its answer is not well formed");
    const value = withoutSpace(line.slice(colon + 1));
    const lower = name.toLowerCase();
    const before = headers[lower];
    if (before === undefined) headers[lower] = value;
    else if (!FIRST_COUNTS.has(lower)) headers[lower] = [...(typeof before === "string" ? [before] : before), value];
  }
  return { status: Number(code), headers, ...framingOf(headers), ...lifeOf(headers, minor === "1") };
}

/** Without white space at both ends; in one pass, because a server chooses the length. */
function withoutSpace(text: string): string {
  let from = 0;
  let to = text.length;
  while (from < to && isSpace(text.charCodeAt(from))) from++;
  while (to > from && isSpace(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

function framingOf(headers: AnswerHeaders): Pick<Head, "framing" | "length"> {
  const { "content-length": length, "transfer-encoding": coding } = headers;
  if (coding !== undefined) {
    if (length !== undefined) throw new Error("its answer has both a length and a transfer coding");
    if (typeof coding !== "string" || coding.toLowerCase() !== "chunked") {
      throw new Error("its answer has a transfer coding other than `chunked`");
    }
    return { framing: "chunked", length: 0 };
  }
  if (length === undefined) return { framing: "until-close", length: 0 };
  if (typeof length !== "string" || !LENGTH.test(length)) throw new Error("the length of its answer is not one number");
  return { framing: "length", length: Number(length) };
}

function lifeOf(headers: AnswerHeaders, isNew: boolean): Pick<Head, "keepsOpen" | "keepAliveMs"> {
  const said = [headers.connection ?? ""].flat().join(",").toLowerCase().split(",").map(withoutSpace);
  const keepsOpen = !said.includes("close") && (isNew || said.includes("keep-alive"));
  const hint = /(?:^|[,;\s])timeout=(\d{1,9})/i.exec([headers["keep-alive"] ?? ""].flat().join(","));
  const keepAliveMs = hint === null ? undefined : Number(hint[1]) * 1_000;
  // The hint may leave no time at all.
  return { keepsOpen: keepsOpen && (keepAliveMs === undefined || keepAliveMs > 1_000), keepAliveMs };
}
