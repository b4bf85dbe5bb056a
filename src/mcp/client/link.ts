// Requests out, answers in, over any transport. An answer counts for the request with exactly its id, once;
// whatever else arrives as an answer is dropped and counted. What a message means is decided by others.

import {
  type ErrorResponse,
  Fault,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  type Notification,
  type Request,
  type Response,
  classify,
  unsendable,
} from "../index.js";
import type { ClientTransport, Sent } from "../transports/index.js";
import { Clock } from "./clock.js";
import { errorFromAnswer, errorFromStatus, McpError, ProtocolError, type WireErrorObject } from "./errors.js";
import type { ClientLimits, Progress } from "./options.js";
import { Slots } from "./slots.js";
import { encodeRequest, parseMessage } from "./text.js";

export interface ClientSessionEvents {
  request(message: Request): void;
  notification(message: Notification): void;
  closed(error?: Error): void;
}

export interface ClientSessionStats {
  /** Answers that fit no request under way: late, repeated, or made up. */
  strayAnswers: number;
  /** Texts that are no JSON-RPC message. */
  malformed: number;
}

export interface Ask {
  method: string;
  params: JsonObject;
  /** Canonical text of `params.arguments`, sent as it is; `params` then has no arguments of its own. */
  argumentsText?: string;
  headers?: Readonly<Record<string, string>>;
  timeoutMs: number;
  totalMs: number;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
  /** Tells the peer that nobody waits for this answer any more. */
  cancel: (id: number, reason: string) => void;
  /**
   * The response ended and the answer was not in it. Resolves when every way to pick it up again has been tried;
   * if the answer still has not come then, the request fails. Undefined when there is no such way.
   */
  resume?: (sent: Sent, signal: AbortSignal) => Promise<void> | undefined;
  /** An error without an id is taken for the answer. Only for a request that is alone on the link. */
  orphanErrors?: boolean;
}

export interface ClientAnswer {
  result: JsonObject;
  id: number;
  sent: Sent | undefined;
}

interface Pending {
  readonly method: string;
  readonly orphanErrors: boolean;
  /** It stays open until its signal, so nothing that goes wrong with one message is about it. */
  readonly held: boolean;
  progress(params: JsonObject): void;
  answer(response: Response): void;
  fail(error: Error): void;
}

/** A stream whose answer has come is given this long to end by itself. */
const LINGER_MS = 1_000;

export class ClientSession {
  readonly stats: ClientSessionStats = { strayAnswers: 0, malformed: 0 };
  readonly transport: ClientTransport;
  readonly #limits: ClientLimits;
  readonly #events: ClientSessionEvents;
  readonly #slots: Slots;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  #closed: Error | undefined;
  /** Batches are read only while a revision that has them is spoken. */
  batches = false;

  constructor(transport: ClientTransport, limits: ClientLimits, events: ClientSessionEvents) {
    this.transport = transport;
    this.#limits = limits;
    this.#events = events;
    this.#slots = new Slots(limits.maxInFlight, limits.maxQueued);
  }

  async start(): Promise<void> {
    await this.transport.start({
      message: (text) => this.#receive(text),
      closed: (error) => this.#onClosed(error),
      malformed: (problem) => this.#onMalformed(problem.message),
    });
  }

  get closed(): boolean {
    return this.#closed !== undefined;
  }

  async request(ask: Ask): Promise<ClientAnswer> {
    const clock = new Clock(ask);
    try {
      await this.#slots.acquire(clock.signal);
      try {
        return await this.#exchange(ask, clock);
      } finally {
        this.#slots.release();
      }
    } finally {
      clock.stop();
    }
  }

  /** A request that stays open: it takes no slot, and only its signal or the peer ends it. */
  async open(ask: Omit<Ask, "timeoutMs" | "totalMs">, onId: (id: number) => void): Promise<ClientAnswer> {
    const clock = new Clock({ ...ask, timeoutMs: 0, totalMs: 0 });
    try {
      return await this.#exchange({ ...ask, timeoutMs: 0, totalMs: 0 }, clock, onId);
    } finally {
      clock.stop();
    }
  }

  /** Several requests in one text. Each answer is matched by its own id; the texts are bounded like any other. */
  batch(asks: readonly Ask[]): Promise<ClientAnswer>[] {
    const texts: string[] = [];
    let sending: Promise<Sent> | undefined;
    // Every request hands in its text in this turn of the loop; the one send happens right after it.
    const send = (text: string): Promise<Sent> => {
      texts.push(text);
      sending ??= Promise.resolve().then(() => this.send(`[${texts.join(",")}]`, asks[0]?.headers));
      return sending;
    };
    return asks.map((ask) => {
      const clock = new Clock(ask);
      return this.#exchange(ask, clock, undefined, send).finally(() => clock.stop());
    });
  }

  async notify(message: Notification, headers?: Readonly<Record<string, string>>): Promise<Sent> {
    return this.send(JSON.stringify(message), headers);
  }

  /** Sends one text within the size limit. */
  async send(text: string, headers?: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<Sent> {
    if (this.#closed) throw this.#closed;
    this.#checkSize(text);
    try {
      const sent = await this.transport.send(text, {
        ...(headers ? { headers } : {}),
        ...(signal ? { signal } : {}),
      });
      // Whoever needs to know how the response ended looks at `done` again; for the others it must not go unheard.
      sent.done.catch(() => {});
      return sent;
    } catch (error) {
      throw lost(error);
    }
  }

  async close(): Promise<void> {
    this.#abandonAll();
    this.#fail(new ProtocolError("Cancelled", "the client was closed"));
    await this.transport.close();
  }

  /** A server whose peer falls silent may go on for an answer that somebody still reads; here nobody does. */
  #abandonAll(): void {
    // On HTTP the closed connection says it.
    if (this.#closed || this.transport.kind === "http") return;
    for (const [requestId, { method }] of this.#pending) {
      // By the specification a handshake is not cancelled.
      if (method === "initialize") continue;
      const params = { requestId, reason: "the client was closed" };
      const text = JSON.stringify({ jsonrpc: "2.0", method: "notifications/cancelled", params });
      this.transport.send(text).then(
        ({ done }) => done.catch(() => {}),
        () => {},
      );
    }
  }

  #exchange(
    ask: Ask,
    clock: Clock,
    onId?: (id: number) => void,
    send: (text: string, signal: AbortSignal) => Promise<Sent> = (text, signal) => this.send(text, ask.headers, signal),
  ): Promise<ClientAnswer> {
    return new Promise<ClientAnswer>((resolve, reject) => {
      if (this.#closed) throw this.#closed;
      const id = ++this.#lastId;
      const text = encoded(ask, id, this.#limits.maxDepth);
      this.#checkSize(text);
      onId?.(id);
      const stream = new AbortController();
      let sent: Sent | undefined;
      let resumed = false;
      let sending: Promise<void> | undefined;
      /** INVARIANT: what a request ends with is decided once, and from then on its id is unknown here. */
      const finish = (then: () => void): void => {
        if (!this.#pending.delete(id)) return;
        clock.signal.removeEventListener("abort", onAbort);
        if (resumed) stream.abort();
        then();
      };
      const onAbort = (): void =>
        finish(() => {
          ask.cancel(id, String((clock.signal.reason as Error)?.message ?? "cancelled"));
          stream.abort();
          reject(clock.signal.reason);
        });
      const fail = (error: Error): void => finish(() => reject(error));
      this.#pending.set(id, {
        method: ask.method,
        orphanErrors: ask.orphanErrors ?? false,
        held: onId !== undefined,
        progress: (report) => {
          if (typeof report.progress !== "number") return;
          clock.touch();
          ask.onProgress?.(report as unknown as Progress);
        },
        answer: (response) =>
          finish(() => {
            const settle = (): void => {
              if (sent) endSoon(sent, stream);
              if ("error" in response) reject(withStatus(errorFromAnswer(response.error, ask.method), sent));
              else resolve({ result: response.result, id, sent });
            };
            // A body may be here before `send` has told of its head, and the head names the session.
            if (sent || this.transport.kind !== "http") settle();
            else sending?.then(settle, settle);
          }),
        fail,
      });
      if (clock.signal.aborted) return onAbort();
      clock.signal.addEventListener("abort", onAbort, { once: true });
      const ended = (head: Sent, error?: Error): void => {
        if (!this.#pending.has(id) || head.status === undefined) return;
        const giveUp = (): void => fail(error ? lost(error) : unanswered(ask.method, head));
        const again = ask.resume?.(head, stream.signal);
        resumed = again !== undefined;
        if (again) again.then(giveUp, giveUp);
        else giveUp();
      };
      sending = send(text, stream.signal).then((head) => {
        sent = head;
        head.done.then(
          () => ended(head),
          (error: Error) => ended(head, error),
        );
      }, fail);
    });
  }

  #receive(text: string): void {
    let value: JsonValue;
    try {
      value = parseMessage(text, this.#limits.maxDepth);
    } catch (error) {
      this.stats.malformed++;
      this.#pending.get(idOfUnreadable(text) ?? Number.NaN)?.fail(unreadable((error as Error).message));
      return;
    }
    if (Array.isArray(value) && this.batches) for (const item of value) this.#handle(item);
    else this.#handle(value);
  }

  #handle(value: JsonValue): void {
    const classified = classify(value);
    switch (classified.kind) {
      case "request":
        return this.#events.request(classified.message);
      case "notification":
        return this.#onNotification(classified.message);
      case "response":
        return this.#onResponse(classified.message);
      case "invalid": {
        this.stats.malformed++;
        const pending = typeof classified.id === "number" ? this.#pending.get(classified.id) : undefined;
        const looksLikeAnswer = isJsonObject(value) && !("method" in value);
        if (looksLikeAnswer) {
          pending?.fail(new ProtocolError("InvalidRequest", `the answer is malformed: ${classified.fault.message}`));
        }
      }
    }
  }

  #onResponse(response: Response): void {
    if (response.id === null || response.id === undefined) return this.#onOrphan(response as ErrorResponse);
    const pending = typeof response.id === "number" ? this.#pending.get(response.id) : undefined;
    if (pending) pending.answer(response);
    else this.stats.strayAnswers++;
  }

  /** A server that could not read a request does not know its id; with one under way it can only be that one. */
  #onOrphan(response: ErrorResponse): void {
    const only = this.#alone();
    // On HTTP it belongs to the response it came in, and whoever sent that request reads it there.
    if (only && (only.orphanErrors || this.transport.kind !== "http")) return only.answer(response);
    if (this.transport.kind !== "http") this.stats.strayAnswers++;
  }

  #alone(): Pending | undefined {
    let only: Pending | undefined;
    for (const pending of this.#pending.values()) {
      if (pending.held) continue;
      if (only) return undefined;
      only = pending;
    }
    return only;
  }

  #onNotification(message: Notification): void {
    if (message.method !== "notifications/progress") return this.#events.notification(message);
    const token = message.params?.progressToken;
    const pending = typeof token === "number" ? this.#pending.get(token) : undefined;
    if (pending) pending.progress(message.params as JsonObject);
  }

  /** One of the requests will never be answered; with several under way nobody knows which, and it times out. */
  #onMalformed(reason: string): void {
    this.stats.malformed++;
    this.#alone()?.fail(unreadable(reason));
  }

  #checkSize(text: string): void {
    // Every UTF-16 unit is at most three bytes, so most texts need no count.
    if (text.length * 3 <= this.#limits.maxMessageBytes) return;
    const bytes = Buffer.byteLength(text);
    if (bytes <= this.#limits.maxMessageBytes) return;
    throw new ProtocolError(
      "TooLarge",
      `the message has ${bytes} bytes and the limit is ${this.#limits.maxMessageBytes}; send less or raise limits.maxMessageBytes`,
    );
  }

  #onClosed(error?: Error): void {
    const already = this.#closed !== undefined;
    this.#fail(lost(error ?? new Error("the server closed the connection")));
    if (!already) this.#events.closed(error);
  }

  #fail(error: Error): void {
    this.#closed ??= error;
    for (const pending of this.#pending.values()) pending.fail(error);
  }
}

/** Progress is reported under the request's own id, which no other request under way has. */
function withProgressToken(ask: Ask, id: number): JsonObject {
  if (ask.method !== "tools/call" && !ask.onProgress) return ask.params;
  const meta = isJsonObject(ask.params._meta) ? ask.params._meta : {};
  return { ...ask.params, _meta: { ...meta, progressToken: id } };
}

/** The levels that stand around the parameters: the message itself, and a batch. */
const AROUND_PARAMS = 2;

function encoded(ask: Ask, id: number, maxDepth: number): string {
  try {
    // The server's own state goes back as it came, whatever it is.
    const { requestState: _opaque, ...ours } = ask.params;
    const problem = unsendable(ours, maxDepth - AROUND_PARAMS);
    if (problem) throw new TypeError(`\`${problem.path}\`: ${problem.reason}`);
    return encodeRequest(id, ask.method, withProgressToken(ask, id), ask.argumentsText);
  } catch (error) {
    const why = (error as Error).message;
    throw new ProtocolError("InvalidParams", `the parameters of ${ask.method} cannot be sent: ${why}`, {
      cause: error,
    });
  }
}

function withStatus(error: McpError, sent: Sent | undefined): McpError {
  return sent?.status === undefined ? error : Object.assign(error, { status: sent.status });
}

/** The response is over and had no answer in it; its body may still hold an error that names no request. */
function unanswered(method: string, sent: Sent): McpError {
  const status = sent.status ?? 0;
  const error = orphanIn(sent.body);
  if (error && status >= 400) return withStatus(errorFromAnswer(error, method), sent);
  const asks = sent.headers?.["www-authenticate"];
  const said = typeof asks === "string" ? `; it asks for ${asks}` : "";
  return errorFromStatus(status, `the server answered ${method} with HTTP ${status} and no JSON-RPC answer${said}`);
}

function orphanIn(body: string | undefined): WireErrorObject | undefined {
  if (body === undefined) return undefined;
  try {
    const value = JSON.parse(body) as JsonValue;
    // Servers differ in what they put where the id would be; the response belongs to this request alone.
    const classified = classify(isJsonObject(value) ? { ...value, id: null } : value);
    if (classified.kind !== "response" || !("error" in classified.message)) return undefined;
    return classified.message.error;
  } catch {
    return undefined;
  }
}

function unreadable(reason: string): ProtocolError {
  return new ProtocolError("TooLarge", `the server's answer cannot be read: ${reason}`);
}

/** Whose answer this was, in the two ways that servers write one, when the rest of it cannot be read. */
function idOfUnreadable(text: string): number | undefined {
  const first = /^\{"jsonrpc":"2\.0","id":(\d{1,15}),"(?:result|error)":/.exec(text.slice(0, 60));
  const last = /^\{"(?:result|error)":/.test(text) ? /,"id":(\d{1,15})\}$/.exec(text.slice(-40)) : null;
  const id = (first ?? last)?.[1];
  return id === undefined ? undefined : Number(id);
}

function lost(error: unknown): Error {
  if (error instanceof McpError) return error;
  const why = (error as Error)?.message ?? String(error);
  const type = error instanceof Fault ? error.type : "IoError";
  return new ProtocolError(type, `the connection failed: ${why}`, { cause: error });
}

/** A peer that keeps the stream open after its answer does not keep ours. */
function endSoon(sent: Sent, stream: AbortController): void {
  if (!String(sent.headers?.["content-type"] ?? "").startsWith("text/event-stream")) return;
  const timer = setTimeout(() => stream.abort(), LINGER_MS);
  timer.unref();
  const clear = (): void => clearTimeout(timer);
  sent.done.then(clear, clear);
}
