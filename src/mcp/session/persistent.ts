// A server on a connection that all calls share.

import type { Fault } from "../index.js";
import { Calls } from "./calls.js";
import { asServerFault, lost, serverUnavailable, tooLarge } from "./faults.js";
import {
  type MetaOf,
  metaFor,
  negotiateSession,
  noMeta,
  type SessionAgreement,
  type SessionTerms,
} from "./negotiate.js";
import type { PendingRequest } from "./pending.js";
import { boundedText, notificationText, requestText } from "./text.js";
import type {
  ConnectionEvents,
  ListenEvents,
  ListenExtras,
  PersistentTransport,
  SessionAnswer,
  SessionCall,
  SessionConnection,
  SessionContext,
} from "./types.js";

export class PersistentConnection implements SessionConnection {
  readonly #wire: PersistentTransport;
  readonly #around: SessionContext;
  readonly #events: ConnectionEvents;
  readonly #calls: Calls;
  #meta: MetaOf = noMeta;
  #agreement: SessionAgreement | undefined;
  #gone: string | undefined;

  constructor(wire: PersistentTransport, around: SessionContext, events: ConnectionEvents) {
    this.#wire = wire;
    this.#around = around;
    this.#events = events;
    this.#calls = new Calls(around, {
      ...events,
      send: (text) => this.#sendQuietly(text),
      gaveUp: (pending, why) => this.#tellGivenUp(pending, why),
      hopeless: (fault) => this.#lose(fault.message),
    });
  }

  get agreement(): SessionAgreement {
    return this.#agreement as SessionAgreement;
  }

  async open(terms: SessionTerms): Promise<void> {
    await this.#wire.open({
      message: (text) => this.#calls.receive(text),
      malformed: (why) => this.#calls.malformed(why),
      oversized: (hint) => this.#calls.oversized(hint, () => this.#oversized()),
      closed: (why) => this.#lose(why),
    });
    this.#agreement = await negotiateSession(
      {
        ask: (call, meta) => this.#ask(this.#calls.begin(call), meta),
        notify: async (method, agreed) => {
          this.#speak(agreed);
          await this.#wire.send(notificationText(method, undefined));
        },
      },
      terms,
    );
    this.#speak(this.#agreement);
    this.#meta = metaFor(this.#agreement.revision, terms.clientInfo);
  }

  call(call: SessionCall): Promise<SessionAnswer> {
    return this.#ask(this.#calls.begin(call), this.#meta);
  }

  listen(call: SessionCall, acknowledged: ListenEvents["acknowledged"], more?: ListenExtras): Promise<SessionAnswer> {
    return this.#ask(this.#calls.beginListen(call, { ...more, acknowledged }), this.#meta);
  }

  batch(calls: readonly SessionCall[]): Promise<SessionAnswer>[] {
    const all = calls.map((call) => this.#calls.begin(call));
    const texts = all.flatMap((pending) => this.#textOf(pending, this.#meta) ?? []);
    for (const pending of all) pending.delivered = true;
    this.#sendText(`[${texts.join(",")}]`).catch((error: unknown) => {
      for (const pending of all) this.#unsent(pending, error);
    });
    return all.map((pending) => pending.settled);
  }

  async notify(method: string, params?: string): Promise<void> {
    await this.#sendText(notificationText(method, params));
  }

  async close(fault?: Fault): Promise<void> {
    if (fault !== undefined) this.#calls.stopAll(fault);
    this.#gone ??= "it has been stopped";
    this.#calls.failAll((pending) => lost(this.#around.server, pending.delivered, "it has been stopped"));
    await this.#wire.close();
  }

  #speak({ revision }: SessionAgreement): void {
    this.#calls.mayAsk = revision.serverRequests;
    this.#calls.mayBatch = revision.batches;
  }

  #ask(pending: PendingRequest, meta: MetaOf): Promise<SessionAnswer> {
    const text = pending.over ? undefined : this.#textOf(pending, meta);
    if (text === undefined) return pending.settled;
    try {
      const sent = this.#wire.send(text);
      pending.delivered = true;
      if (sent !== undefined) sent.catch((error: unknown) => this.#unsent(pending, error));
    } catch (error) {
      this.#unsent(pending, error);
    }
    return pending.settled;
  }

  #unsent(pending: PendingRequest, error: unknown): void {
    pending.fail(asServerFault(this.#around.server, error, false));
  }

  /** Undefined when the request cannot be sent, and has failed. */
  #textOf(pending: PendingRequest, meta: MetaOf): string | undefined {
    const { call } = pending;
    const { server, limits } = this.#around;
    try {
      if (this.#gone !== undefined) throw serverUnavailable(server, this.#gone);
      return boundedText(
        server,
        limits.maxMessageBytes,
        requestText(pending.id, call.method, call.params, meta(call, pending.id)),
      );
    } catch (error) {
      this.#unsent(pending, error);
      return undefined;
    }
  }

  /** The handshake itself is never cancelled: the revisions that have it forbid that. */
  #tellGivenUp(pending: PendingRequest, reason: string): void {
    if (!pending.delivered || pending.call.method === "initialize") return;
    const params = JSON.stringify({ requestId: pending.id, reason });
    this.#sendQuietly(notificationText("notifications/cancelled", params));
  }

  async #sendText(text: string): Promise<void> {
    const { server, limits } = this.#around;
    if (this.#gone !== undefined) throw serverUnavailable(server, this.#gone);
    await this.#wire.send(boundedText(server, limits.maxMessageBytes, text));
  }

  #sendQuietly(text: string): void {
    try {
      if (this.#gone === undefined) this.#wire.send(text)?.catch(() => {});
    } catch {
      // A server that takes nothing any more is noticed by the next call.
    }
  }

  #oversized(): ReturnType<typeof tooLarge> {
    const { server, limits } = this.#around;
    return tooLarge(
      server,
      `server \`${server}\` answered more than the limit of ${limits.maxMessageBytes} bytes`,
      true,
    );
  }

  #lose(why: string): void {
    if (this.#gone !== undefined) return;
    this.#gone = why;
    const { server } = this.#around;
    this.#calls.failAll((pending) => lost(server, pending.delivered, why));
    this.#events.lost(lost(server, false, why));
    void this.#wire.close().catch(() => {});
  }
}
