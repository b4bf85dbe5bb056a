// A handshake connection: its phase, what the client can do, what is in flight, and requests that wait for the client.
// On stdio, TCP, WebSocket and memory it is the connection; on HTTP it is named by `Mcp-Session-Id`.

import { randomBytes } from "node:crypto";
import {
  ByteBudget,
  Charge,
  Fault,
  type JsonObject,
  LEGACY,
  type Phase,
  type RequestId,
  type Response,
  type Revision,
} from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { Inbound } from "../mcp/transports/index.js";
import type { Cancel, Conversation } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { RequestOutcome } from "./answer.js";
import { type EventStream, type Replay, Streams } from "./streams.js";

const MAX_REQUESTS = 64;
const MAX_SUBSCRIPTIONS = 1_000;
const MAX_URI_CHARS = 8_192;
/** What a session costs besides what it keeps: its tables and what the client can do. */
const SESSION_BYTES = 8 * 1024;
const SUBSCRIPTION_BYTES = 256;

export class Session {
  readonly id: string;
  phase: Phase = "new";
  revision: Revision = LEGACY[0] as Revision;
  clientCapabilities: JsonObject = {};
  principal: Principal | undefined;
  /** `info` until the client sets another level. */
  logLevel: LogLevel = "info";
  readonly underWay = new Map<RequestId, Cancel>();
  /** Resources it follows, each with what ends that. */
  readonly subscriptions = new Map<string, () => void>();
  readonly streams: Streams;
  /** HTTP: the stream that a GET opened. */
  listening: EventStream | undefined;
  lastUsed = performance.now();
  readonly #send: (text: string) => boolean;
  readonly #requests = new Map<RequestId, { resolve: (result: JsonObject) => void; reject: (fault: Fault) => void }>();
  #nextRequest = 0;
  readonly #at: string | undefined;
  readonly #charge: Charge;
  readonly #atEnd: (() => void)[] = [];

  /** `send` reaches the client outside of any request; `at` names the replica, where a session may be at several. */
  constructor(
    send: ((session: Session, text: string) => boolean) | undefined,
    id?: string,
    at?: string,
    budgets?: { readonly session: ByteBudget; readonly replay: Replay },
  ) {
    this.id = id ?? randomBytes(18).toString("base64url");
    this.#at = at;
    this.#charge = new Charge(budgets?.session);
    if (!this.#charge.set(SESSION_BYTES)) throw new Fault("TooMany", "this agent keeps too much open; end a session");
    this.streams = new Streams(at, budgets?.replay);
    this.#send = send
      ? (text) => send(this, text)
      : (text) => (this.listening?.live ? this.listening.push(text) : true);
  }

  notify(method: string, params?: JsonObject): boolean {
    if (this.phase !== "active") return true;
    return this.#send(JSON.stringify({ jsonrpc: "2.0", method, ...(params ? { params } : {}) }));
  }

  subscribe(uri: string, follow: () => () => void = () => () => {}): void {
    if (this.subscriptions.has(uri)) return;
    if (this.subscriptions.size >= MAX_SUBSCRIPTIONS) {
      throw new Fault("TooMany", `one session can follow ${MAX_SUBSCRIPTIONS} resources`);
    }
    if (uri.length > MAX_URI_CHARS) {
      throw new Fault("InvalidParams", `\`uri\` has at most ${MAX_URI_CHARS} characters`, { field: "uri" });
    }
    if (!this.#charge.set(this.#charge.bytes + subscriptionCost(uri))) {
      throw new Fault("TooMany", "this agent follows too many resources; unsubscribe from some");
    }
    this.subscriptions.set(uri, follow());
  }

  unsubscribe(uri: string): void {
    this.subscriptions.get(uri)?.();
    if (this.subscriptions.delete(uri)) this.#charge.set(this.#charge.bytes - subscriptionCost(uri));
  }

  /** Sends a request to the client within the call `via` belongs to; its answer comes as a message of its own. */
  request(
    method: string,
    params: JsonObject,
    via: (text: string) => boolean,
    timeoutMs: number,
    cancel: Cancel,
  ): Promise<JsonObject> {
    if (this.#requests.size >= MAX_REQUESTS) {
      return Promise.reject(new Fault("TooMany", `${MAX_REQUESTS} requests to this client are already open`));
    }
    const id = `q${this.#nextRequest++}${this.#at === undefined ? "" : `~${this.#at}`}`;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          settle(() =>
            reject(
              new Fault("ToolTimeout", `the client did not answer \`${method}\` within ${timeoutMs} ms`, {
                extra: { timeout_ms: timeoutMs, timedOut: true },
                suggestions: ["Repeat the call when a user can answer"],
              }),
            ),
          ),
        timeoutMs,
      );
      const stop = (): void => settle(() => reject(cancel.fault ?? new Fault("Cancelled", "the call was cancelled")));
      const settle = (then: () => void): void => {
        clearTimeout(timer);
        this.#requests.delete(id);
        cancel.signal.removeEventListener("abort", stop);
        then();
      };
      cancel.signal.addEventListener("abort", stop, { once: true });
      this.#requests.set(id, {
        resolve: (result) => settle(() => resolve(result)),
        reject: (fault) => settle(() => reject(fault)),
      });
      via(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** A response belongs to exactly one open request of this session, or it is dropped. */
  answer(response: Response): boolean {
    const open = response.id === null ? undefined : this.#requests.get(response.id);
    if (!open) return false;
    if ("result" in response) open.resolve(response.result);
    else open.reject(new Fault("ToolExecution", `the client rejected the request: ${response.error.message}`));
    return true;
  }

  close(reason: string): void {
    if (this.phase === "closed") return;
    this.phase = "closed";
    const fault = new Fault("Cancelled", reason);
    for (const cancel of this.underWay.values()) cancel.abort(fault);
    for (const open of [...this.#requests.values()]) open.reject(fault);
    this.streams.endAll();
    for (const uri of [...this.subscriptions.keys()]) this.unsubscribe(uri);
    for (const listener of this.#atEnd.splice(0)) listener();
    this.#charge.set(0);
  }

  onEnd(listener: () => void): void {
    if (this.phase === "closed") listener();
    else this.#atEnd.push(listener);
  }
}

function subscriptionCost(uri: string): number {
  return SUBSCRIPTION_BYTES + 2 * uri.length;
}

/**
 * `SessionConversation` reaches the client of a session. On HTTP the answer may be lost on its way and asked for again, so
 * what precedes it goes through a stream that is kept; on every other transport the connection is the stream.
 */
export class SessionConversation implements Conversation {
  readonly #session: Session;
  readonly #inbound: Inbound;
  readonly #askTimeoutMs: number;
  readonly #open: () => EventStream;
  /** HTTP: undefined until something is sent before the answer. */
  #stream: EventStream | undefined = undefined;

  /** `open` makes the stream that is kept for a client that comes back. */
  constructor(session: Session, inbound: Inbound, askTimeoutMs: number, open: () => EventStream) {
    this.#session = session;
    this.#inbound = inbound;
    this.#askTimeoutMs = askTimeoutMs;
    this.#open = open;
  }

  get session(): Session {
    return this.#session;
  }
  get clientCapabilities(): JsonObject {
    return this.#session.clientCapabilities;
  }
  get logLevel(): LogLevel {
    return this.#session.logLevel;
  }

  notify(method: string, params: JsonObject): boolean {
    return takesStreams(this.#inbound) ? this.#push(JSON.stringify({ jsonrpc: "2.0", method, params })) : true;
  }

  drained(): Promise<void> {
    return this.#inbound.reply.drained();
  }

  request(method: string, params: JsonObject, cancel: Cancel): Promise<JsonObject> {
    return this.#session.request(method, params, (text) => this.#push(text), this.#askTimeoutMs, cancel);
  }

  end(answer: RequestOutcome): void {
    if (this.#stream) this.#stream.end(answer.text);
    else this.#inbound.reply.end(answer.text, answer.head);
  }

  #push(text: string): boolean {
    const { channel, reply } = this.#inbound;
    if (channel) return reply.send(text);
    this.#stream ??= this.#open();
    return this.#stream.push(text);
  }
}

/** Over HTTP only a client that accepts event streams gets notifications before its answer. */
export function takesStreams({ peer }: Inbound): boolean {
  return peer.transport !== "http" || peer.headers?.accept?.includes("text/event-stream") === true;
}
