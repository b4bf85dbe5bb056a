// The way back within a handshake session. On HTTP the answer may be lost on its way and asked for again, so whatever
// comes before it goes through a stream that is kept; elsewhere the connection is the stream.

import type { JsonObject } from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { Inbound } from "../mcp/transports/index.js";
import type { RequestOutcome } from "./answer.js";
import type { Cancel, Conversation } from "../pipeline/index.js";
import type { Session } from "./session.js";
import type { EventStream } from "./streams.js";

export class SessionConversation implements Conversation {
  readonly #session: Session;
  readonly #inbound: Inbound;
  readonly #askTimeoutMs: number;
  readonly #open: () => EventStream;
  /** HTTP: nothing until something has to be said before the answer. */
  #stream: EventStream | undefined = undefined;

  /** `open` makes the stream that is kept for a client that comes back. */
  constructor(session: Session, inbound: Inbound, askTimeoutMs: number, open: () => EventStream) {
    this.#session = session;
    this.#inbound = inbound;
    this.#askTimeoutMs = askTimeoutMs;
    this.#open = open;
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
    return this.#session.ask(method, params, (text) => this.#push(text), this.#askTimeoutMs, cancel);
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

/** Over HTTP only a client that takes event streams can be told anything before its answer. */
export function takesStreams({ peer }: Inbound): boolean {
  return peer.transport !== "http" || peer.headers?.accept?.includes("text/event-stream") === true;
}
