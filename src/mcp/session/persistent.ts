// A server on a connection that all calls share.

import { Calls } from "./calls.js";
import { type SessionAgreement, type MetaOf, noMeta } from "./dialect.js";
import { asServerFault, lost, tooLarge, serverUnavailable } from "./faults.js";
import { metaFor, negotiateSession, type SessionTerms } from "./negotiate.js";
import type { PendingRequest } from "./pending.js";
import { notificationText, requestText } from "./text.js";
import type { PersistentTransport } from "./transport.js";
import type { ConnectionEvents, SessionAnswer, SessionCall, SessionConnection, SessionContext } from "./types.js";

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
      change: (change) => events.change(change),
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
          this.#calls.mayAsk = agreed.revision.serverRequests;
          this.#wire.send(notificationText(method, undefined));
        },
      },
      terms,
    );
    this.#calls.mayAsk = this.#agreement.revision.serverRequests;
    this.#meta = metaFor(this.#agreement.revision, terms.clientInfo);
  }

  call(call: SessionCall): Promise<SessionAnswer> {
    return this.#ask(this.#calls.begin(call), this.#meta);
  }

  listen(call: SessionCall, acknowledged: () => void): Promise<SessionAnswer> {
    return this.#ask(this.#calls.beginListen(call, acknowledged), this.#meta);
  }

  async close(): Promise<void> {
    this.#gone ??= "it has been stopped";
    this.#calls.failAll((pending) => lost(this.#around.server, pending.delivered, "it has been stopped"));
    await this.#wire.close();
  }

  #ask(pending: PendingRequest, meta: MetaOf): Promise<SessionAnswer> {
    if (pending.over) return pending.settled;
    const { call } = pending;
    const { server, limits } = this.#around;
    try {
      if (this.#gone !== undefined) throw serverUnavailable(server, this.#gone);
      const text = requestText(pending.id, call.method, call.params, meta(call, pending.id));
      // A UTF-16 unit is at most three bytes, so most texts need no count.
      if (text.length * 3 > limits.maxMessageBytes && Buffer.byteLength(text) > limits.maxMessageBytes) {
        throw tooLarge(server, `the request is over the limit of ${limits.maxMessageBytes} bytes`, false);
      }
      this.#wire.send(text);
      pending.delivered = true;
    } catch (error) {
      pending.fail(asServerFault(server, error, false));
    }
    return pending.settled;
  }

  /** The handshake itself is never cancelled: the revisions that have it forbid that. */
  #tellGivenUp(pending: PendingRequest, reason: string): void {
    if (!pending.delivered || pending.call.method === "initialize") return;
    const params = JSON.stringify({ requestId: pending.id, reason });
    this.#sendQuietly(notificationText("notifications/cancelled", params));
  }

  #sendQuietly(text: string): void {
    try {
      if (this.#gone === undefined) this.#wire.send(text);
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
