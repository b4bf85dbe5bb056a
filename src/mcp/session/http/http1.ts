// HTTP/1.1 towards one server, on plain sockets: a request is one write, and an answer that comes in one piece is read in
// one go. What is read here is strict: an answer whose end two readers could see in different places is an error, and
// whatever a server sends beyond an answer ends its connection.

import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { ResponseReader } from "./response-reader.js";

/** How a connection is made: to an address that may be reached, with TLS where asked for. */
export type Dial = (to: { readonly host: string; readonly port: number; readonly tls: boolean }) => Promise<Socket>;

/** Who waits for one answer. Nothing is called any more after `failed` or `ended`, or when the wait was given up. */
export interface AnswerSink {
  /** The request is about to be written. */
  sent(connection: AnswerSource): void;
  head(status: number, headers: AnswerHeaders): void;
  data(bytes: Buffer): void;
  ended(): void;
  failed(error: Error): void;
}

export type AnswerHeaders = Readonly<IncomingHttpHeaders>;

/** Where an answer comes from. */
export interface AnswerSource {
  pause(): void;
  resume(): void;
}

interface Job {
  readonly head: string;
  readonly body: string;
  readonly isHead: boolean;
  readonly sink: AnswerSink;
}

/** Servers close idle connections after 5 s, or say when; a request must not meet that. */
const IDLE_MS = 4_000;
const HINT_MARGIN_MS = 1_000;
const MAX_IDLE_MS = 600_000;

/** Connections to one origin, each with one request at a time; what is more waits in order. */
export class HttpPool {
  readonly #dial: Dial;
  readonly #to: Parameters<Dial>[0];
  readonly #host: string;
  readonly #max: number;
  readonly #onClosed: (isByAgreement: boolean) => void;
  readonly #waiting = new Set<Job>();
  readonly #all = new Set<Connection>();
  /** The one used last comes first: the others may then be closed. */
  readonly #idle: Connection[] = [];
  readonly #byMethod = new Map<string, Prepared>();
  #dialing = 0;
  #sweep: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `onClosed` when a connection was broken, or the last one has ended as both sides expect it to. */
  constructor(url: URL, dial: Dial, max: number, onClosed: (isByAgreement: boolean) => void) {
    const tls = url.protocol === "https:";
    this.#dial = dial;
    this.#to = { host: url.hostname, port: url.port === "" ? (tls ? 443 : 80) : Number(url.port), tls };
    this.#host = url.host;
    this.#max = max;
    this.#onClosed = onClosed;
  }

  /** Returns what gives the answer up. Throws a TypeError for a head that cannot be sent. */
  send(
    method: string,
    path: string,
    headers: readonly string[],
    body: string | undefined,
    sink: AnswerSink,
  ): () => void {
    const length = body === undefined ? (BODILESS.has(method) ? "" : "content-length: 0\r\n") : lengthOf(body);
    const head = `${this.#prepared(method, path, headers)}${length}\r\n`;
    const job = { head, body: body ?? "", isHead: method === "HEAD", sink };
    if (this.#isClosed) throw new TypeError("the connections to this server are closed");
    const connection = this.#takeIdle();
    if (connection !== undefined) connection.send(job);
    else {
      this.#waiting.add(job);
      this.#connect();
    }
    return () => this.#giveUp(job);
  }

  /** The same head comes with many calls: it is checked and put together once. */
  #prepared(method: string, path: string, headers: readonly string[]): string {
    const last = this.#byMethod.get(method);
    if (last !== undefined && last.path === path && isSame(last.headers, headers)) return last.head;
    const head = headOf(method, path, this.#host, headers);
    if (this.#byMethod.size < MAX_PREPARED) this.#byMethod.set(method, { path, headers: [...headers], head });
    return head;
  }

  #takeIdle(): Connection | undefined {
    for (let found = this.#idle.pop(); found !== undefined; found = this.#idle.pop()) {
      if (found.isFresh(performance.now())) return found;
      found.close();
    }
    return undefined;
  }

  #giveUp(job: Job): void {
    if (this.#waiting.delete(job)) return;
    for (const connection of this.#all) {
      if (connection.job === job) connection.close();
    }
  }

  #connect(): void {
    if (this.#all.size + this.#dialing >= this.#max || this.#dialing >= this.#waiting.size) return;
    this.#dialing++;
    this.#dial(this.#to).then(
      (socket) => {
        this.#dialing--;
        if (this.#isClosed) {
          socket.destroy();
          return;
        }
        const connection = new Connection(socket, this);
        this.#all.add(connection);
        this.released(connection);
      },
      (error: Error) => {
        this.#dialing--;
        this.#next()?.sink.failed(error);
        this.#connect();
      },
    );
  }

  #next(): Job | undefined {
    for (const job of this.#waiting) {
      this.#waiting.delete(job);
      return job;
    }
    return undefined;
  }

  released(connection: Connection): void {
    const job = this.#next();
    if (job !== undefined) return connection.send(job);
    connection.rest();
    this.#idle.push(connection);
    this.#sweep ??= setInterval(() => this.#closeStale(), IDLE_MS / 2).unref();
  }

  closed(connection: Connection, isByAgreement: boolean): void {
    this.#all.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
    if (this.#isClosed) return;
    if (!isByAgreement || this.#all.size === 0) this.#onClosed(isByAgreement);
    this.#connect();
  }

  #closeStale(): void {
    const now = performance.now();
    for (const connection of [...this.#idle]) if (!connection.isFresh(now)) connection.close();
    if (this.#idle.length > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#sweep);
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const connection of [...this.#all]) connection.fail(new Error("the connection was closed"), true);
    for (const { sink } of waiting) sink.failed(new Error("the connection was closed"));
  }
}

class Connection implements AnswerSource {
  job: Job | undefined = undefined;
  readonly #socket: Socket;
  readonly #pool: HttpPool;
  readonly #reader = new ResponseReader();
  #pauses = 0;
  #freshUntil = 0;
  #isOver = false;

  constructor(socket: Socket, pool: HttpPool) {
    this.#socket = socket;
    this.#pool = pool;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("end", () => this.#end());
    socket.on("error", (error) => this.fail(error, false));
    socket.on("close", () => this.fail(new Error("the connection was closed"), false));
  }

  isFresh(now: number): boolean {
    return !this.#isOver && now < this.#freshUntil;
  }

  send(job: Job): void {
    const { sink, head, body, isHead } = job;
    this.job = job;
    this.#reader.begin(isHead);
    this.#socket.ref();
    sink.sent(this);
    if (isAscii(head)) this.#socket.write(head + body, "utf8");
    else {
      this.#socket.cork();
      this.#socket.write(head, "latin1");
      this.#socket.write(body, "utf8");
      this.#socket.uncork();
    }
  }

  rest(): void {
    // A process does not wait for a connection on which nothing is under way.
    this.#socket.unref();
    const { keepAliveMs } = this.#reader;
    const idleMs = keepAliveMs === undefined ? IDLE_MS : Math.min(keepAliveMs - HINT_MARGIN_MS, MAX_IDLE_MS);
    this.#freshUntil = performance.now() + idleMs;
  }

  pause(): void {
    if (this.#pauses++ === 0) this.#socket.pause();
  }

  resume(): void {
    if (--this.#pauses === 0) this.#socket.resume();
  }

  #read(chunk: Buffer): void {
    const { job } = this;
    if (job === undefined) return this.fail(new Error("it sent something that was not asked for"), false);
    const reader = this.#reader;
    try {
      let at = 0;
      if (!reader.hasHead) {
        at = reader.readHead(chunk);
        if (!reader.hasHead) return;
        job.sink.head(reader.status, reader.headers);
      }
      while (this.job === job) {
        at = reader.readBody(chunk, at);
        const { part } = reader;
        if (part !== undefined) job.sink.data(part);
        else if (reader.isOver) return this.#answered(job, at < chunk.length);
        else return;
      }
    } catch (error) {
      this.fail(error as Error, false);
    }
  }

  /** The whole answer is here. With more behind it, which was not asked for, the connection is not used again. */
  #answered(job: Job, hasMore: boolean): void {
    this.job = undefined;
    // A server that says that it closes, or that answers before it has read the request.
    const isLast = hasMore || !this.#reader.keepsOpen || this.#socket.writableLength > 0;
    if (!isLast) this.#pool.released(this);
    else this.#stop();
    job.sink.ended();
    if (isLast) this.#pool.closed(this, !hasMore);
  }

  /** The server sends no more. */
  #end(): void {
    const { job } = this;
    if (job === undefined || !this.#reader.endsWithConnection) return this.fail(new Error("other side closed"), false);
    this.job = undefined;
    this.#stop();
    job.sink.ended();
    this.#pool.closed(this, true);
  }

  /** Ends it as far as we are concerned; an answer that is awaited no more is not reported. */
  close(): void {
    this.job = undefined;
    this.fail(undefined, true);
  }

  fail(error: Error | undefined, isByAgreement: boolean): void {
    if (this.#isOver) return;
    const { job } = this;
    this.job = undefined;
    this.#stop();
    if (error !== undefined) job?.sink.failed(error);
    this.#pool.closed(this, isByAgreement);
  }

  #stop(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }
}

interface Prepared {
  readonly path: string;
  readonly headers: readonly string[];
  readonly head: string;
}

const MAX_PREPARED = 8;
/** Methods whose requests have no body; others say that theirs is empty. */
const BODILESS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);

function lengthOf(body: string): string {
  return `content-length: ${Buffer.byteLength(body)}\r\n`;
}

function isSame(one: readonly string[], other: readonly string[]): boolean {
  if (one.length !== other.length) return false;
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return false;
  return true;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const PATH = /^[\x21-\x7e]+$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: CR and LF are part of a head.
const ASCII = /^[\t\r\n\x20-\x7e]*$/;

function isAscii(text: string): boolean {
  return ASCII.test(text);
}

/** Headers that frame a message or rule its connection: they are written here, and nowhere else. */
const FRAMING: ReadonlySet<string> = new Set([
  "content-length",
  "expect",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

function headOf(method: string, path: string, host: string, headers: readonly string[]): string {
  if (!TOKEN.test(method)) throw new TypeError(`\`${method}\` is not an HTTP method`);
  if (!PATH.test(path)) throw new TypeError("the path of a request has only visible ASCII characters");
  let lines = "";
  let named = host;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    if (!TOKEN.test(name)) throw new TypeError(`\`${name}\` is not the name of a header`);
    if (!VALUE.test(value))
      throw new TypeError(`the value of header \`${name}\` has characters that no header may have`);
    const lower = name.toLowerCase();
    if (FRAMING.has(lower)) throw new TypeError(`header \`${name}\` cannot be set: it frames the request`);
    if (lower === "host") named = value;
    else if (lower !== "connection") lines += `${name}: ${value}\r\n`;
  }
  return `${method} ${path} HTTP/1.1\r\nhost: ${named}\r\nconnection: keep-alive\r\n${lines}`;
}
