// A server over Streamable HTTP: every call is a request of its own, answered by JSON or by an event stream. The
// handshake revisions add a session, a stream for messages that are not answers, and streams that can be picked up again.

import type { Fault } from "../../index.js";
import { Calls } from "../calls.js";
import {
  asServerFault,
  faultOfError,
  faultOfStatus,
  lost,
  nonsense,
  serverUnavailable,
  withStatus,
} from "../faults.js";
import {
  type MetaOf,
  metaFor,
  negotiateSession,
  noMeta,
  type SessionAgreement,
  type SessionTerms,
} from "../negotiate.js";
import type { PendingRequest } from "../pending.js";
import { boundedText, notificationText, readMessage, requestText } from "../text.js";
import type {
  ConnectionEvents,
  Credentials,
  ListenEvents,
  ListenExtras,
  SessionAnswer,
  SessionCall,
  SessionConnection,
  SessionContext,
} from "../types.js";
import { addCallHeaders, addHeaders, type Exchange, type HttpPort, isType, sendAndForget } from "./exchange.js";
import { follow } from "./streams.js";

const SESSION_ID = /^[\x21-\x7e]{1,1024}$/;
const GOODBYE_MS = 1_000;
/** How long a start waits for the server's own stream before it continues without. */
const STREAM_MS = 300;
/** A stream whose answer has come is given this long to end by itself. */
const LINGER_MS = 1_000;

interface HttpPortEvents {
  disconnected(isByAgreement: boolean): void;
  /** A message that came in no response that is known. */
  message(text: string): void;
}

export type OpenPort = (events: HttpPortEvents) => Promise<HttpPort>;

interface Session {
  readonly id: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
}

const NO_SESSION: Session = { id: undefined, headers: {} };

interface Attempt {
  readonly meta: MetaOf;
  readonly isModern: boolean;
  readonly session: Session;
  readonly isSecond: boolean;
}

export class HttpSessionConnection implements SessionConnection {
  readonly #openPort: OpenPort;
  readonly #credentials: Credentials | undefined;
  readonly #around: SessionContext;
  readonly #events: ConnectionEvents;
  readonly #calls: Calls;
  #client: HttpPort | undefined;
  #terms: SessionTerms | undefined;
  #agreement: SessionAgreement | undefined;
  #meta: MetaOf = noMeta;
  #session: Session = NO_SESSION;
  #offeredSession: string | undefined;
  #renewing: Promise<void> | undefined;
  #stopStream: AbortController | undefined;
  #closed = false;

  constructor(
    openPort: OpenPort,
    credentials: Credentials | undefined,
    around: SessionContext,
    events: ConnectionEvents,
  ) {
    this.#openPort = openPort;
    this.#credentials = credentials;
    this.#around = around;
    this.#events = events;
    this.#calls = new Calls(around, {
      ...events,
      send: (text) => void this.#post(text).catch(() => {}),
      gaveUp: (pending, why) => this.#onGaveUp(pending, why),
      hopeless: (fault) => this.#lose(fault),
    });
  }

  get agreement(): SessionAgreement {
    return this.#agreement as SessionAgreement;
  }

  async open(terms: SessionTerms): Promise<void> {
    this.#terms = terms;
    this.#client = await this.#openPort({
      // Also with a session: not every server that was started again answers 404 to the sessions of before.
      disconnected: (isByAgreement) => this.#events.disconnected(isByAgreement),
      message: (text) => this.#calls.receive(text),
    });
    await this.#agree(terms);
  }

  call(call: SessionCall): Promise<SessionAnswer> {
    return this.#begin(this.#calls.begin(call));
  }

  listen(call: SessionCall, acknowledged: ListenEvents["acknowledged"], more?: ListenExtras): Promise<SessionAnswer> {
    return this.#begin(this.#calls.beginListen(call, { ...more, acknowledged }));
  }

  #begin(pending: PendingRequest): Promise<SessionAnswer> {
    if (this.#renewing === undefined) this.#send(pending, this.#attempt());
    else {
      // A new session may be that of another process: the call was checked against what the old one listed.
      this.#renewing
        .then(() => this.#events.mayResend(pending.call))
        .then(
          () => this.#send(pending, this.#attempt()),
          (error: unknown) => pending.fail(asServerFault(this.#around.server, error, false)),
        );
    }
    return pending.settled;
  }

  batch(calls: readonly SessionCall[]): Promise<SessionAnswer>[] {
    const all = calls.map((call) => this.#calls.begin(call));
    this.#sendBatch(all.filter((pending) => !pending.over)).catch((error: unknown) => {
      for (const pending of all) pending.fail(asServerFault(this.#around.server, error, false));
    });
    return all.map((pending) => pending.settled);
  }

  async notify(method: string, params?: string): Promise<void> {
    await this.#post(notificationText(method, params));
  }

  async close(fault?: Fault): Promise<void> {
    if (this.#closed) return;
    if (fault !== undefined) this.#calls.stopAll(fault);
    this.#closed = true;
    this.#stopStream?.abort();
    this.#calls.failAll((pending) => lost(this.#around.server, pending.delivered, "it has been stopped"));
    if (this.#session.id !== undefined) await this.#goodbye();
    await this.#client?.close();
  }

  // ---- agreeing on a revision

  async #agree(terms: SessionTerms): Promise<void> {
    const agreement = await negotiateSession(
      {
        ask: (call, meta, revision) => this.#askFirst(call, { ...FIRST, meta, isModern: revision?.era === "modern" }),
        notify: async (method, agreed) => {
          this.#beginSession(agreed);
          await this.#post(notificationText(method, undefined));
        },
      },
      terms,
    );
    this.#agreement = agreement;
    this.#meta = metaFor(agreement.revision, terms.clientInfo);
    this.#calls.mayAsk = agreement.revision.serverRequests;
    this.#calls.mayBatch = agreement.revision.batches;
    if (agreement.revision.era === "legacy") await this.#openStream();
  }

  async #askFirst(call: SessionCall, attempt: Attempt): Promise<SessionAnswer> {
    const pending = this.#calls.begin(call);
    this.#send(pending, attempt);
    const answer = await pending.settled;
    if (call.method === "initialize" && pending.exchange !== undefined && "headers" in pending.exchange) {
      const id = (pending.exchange as Exchange).headers["mcp-session-id"];
      if (id !== undefined && !(typeof id === "string" && SESSION_ID.test(id))) {
        throw nonsense(this.#around.server, "its session id is not visible ASCII text");
      }
      this.#offeredSession = id;
    }
    return answer;
  }

  #beginSession({ revision }: SessionAgreement): void {
    const id = this.#offeredSession;
    this.#calls.mayAsk = revision.serverRequests;
    this.#session = {
      id,
      headers: {
        ...(id === undefined ? {} : { "mcp-session-id": id }),
        ...(revision.versionHeader ? { "mcp-protocol-version": revision.name } : {}),
      },
    };
  }

  /** Messages that are not answers come on a stream of their own; those before it is open are lost, so it is opened first. */
  async #openStream(): Promise<void> {
    this.#stopStream?.abort();
    const stop = new AbortController();
    this.#stopStream = stop;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, STREAM_MS);
      const goOn = (): void => {
        clearTimeout(timer);
        resolve();
      };
      void follow({
        open: (lastEventId, sink) => this.#get(lastEventId, sink),
        message: (text) => this.#calls.receive(text, null),
        opened: goOn,
        stop: stop.signal,
        maxFailures: this.#around.limits.maxResumes,
      }).finally(goOn);
    });
  }

  /**
   * The server has lost the session. The first call that notices starts again, the others wait: also those that notice when the
   * new session has its id already, since what it lists was not read yet.
   */
  #renew(lostSession: Session): Promise<void> {
    if (this.#renewing === undefined && this.#session !== lostSession) return Promise.resolve();
    const terms = this.#terms as SessionTerms;
    const revision = (this.#agreement as SessionAgreement).revision;
    this.#renewing ??= this.#agree({ ...terms, revision })
      .then(() => this.#events.renewed())
      .finally(() => {
        this.#renewing = undefined;
      });
    return this.#renewing;
  }

  // ---- one call

  #attempt(): Attempt {
    const isModern = this.#agreement?.revision.era === "modern";
    return { meta: this.#meta, isModern, session: this.#session, isSecond: false };
  }

  #send(pending: PendingRequest, attempt: Attempt): void {
    if (pending.over) return;
    try {
      if (this.#closed) throw serverUnavailable(this.#around.server, "it has been stopped");
      const own = this.#credentials?.headers("POST");
      if (own instanceof Promise) {
        own.then(
          (headers) => this.#dispatch(pending, attempt, headers),
          (error: unknown) => pending.fail(asServerFault(this.#around.server, error, false)),
        );
      } else this.#dispatch(pending, attempt, own);
    } catch (error) {
      pending.fail(asServerFault(this.#around.server, error, false));
    }
  }

  #dispatch(pending: PendingRequest, attempt: Attempt, own: Readonly<Record<string, string>> | undefined): void {
    if (pending.over) return;
    const { call } = pending;
    const { server, limits } = this.#around;
    try {
      const text = requestText(pending.id, call.method, call.params, attempt.meta(call, pending.id));
      const body = boundedText(server, limits.maxMessageBytes, text);
      const headers = ["accept", "application/json, text/event-stream", "content-type", "application/json"];
      addHeaders(headers, own);
      addHeaders(headers, attempt.session.headers);
      addCallHeaders(headers, call, attempt.isModern);
      pending.exchange = (this.#client as HttpPort).send(
        { method: "POST", headers, body },
        {
          message: (text, exchange) => this.#onMessage(pending, text, exchange),
          done: (exchange, error) => this.#onDone(pending, attempt, exchange, error),
        },
      );
      pending.delivered = true;
    } catch (error) {
      pending.fail(asServerFault(server, error, false));
    }
  }

  /** Answers name their requests; those that are missing when the response has ended failed. */
  async #sendBatch(all: readonly PendingRequest[]): Promise<void> {
    const { server, limits } = this.#around;
    const texts = all.map(({ id, call }) => requestText(id, call.method, call.params, this.#meta(call, id)));
    const body = boundedText(server, limits.maxMessageBytes, `[${texts.join(",")}]`);
    const headers = await this.#headers("POST", "application/json, text/event-stream");
    headers.push("content-type", "application/json");
    const done = (exchange: Exchange, error: Error | undefined): void => {
      if (error === undefined && !exchange.isStream && this.#isAnswer(exchange, this.#attempt())) {
        this.#calls.receive(exchange.body as string);
      }
      const why = error === undefined ? faultOfStatus(server, exchange) : faultOfError(server, exchange, error);
      for (const pending of all) pending.fail(why);
    };
    (this.#client as HttpPort).send(
      { method: "POST", headers, body },
      { message: (text) => this.#calls.receive(text), done },
    );
    for (const pending of all) pending.delivered = true;
  }

  #onMessage(pending: PendingRequest, text: string, exchange: Exchange): void {
    this.#calls.receive(text, pending);
    if (pending.over) setTimeout(() => exchange.abort(), LINGER_MS).unref();
  }

  #onDone(pending: PendingRequest, attempt: Attempt, exchange: Exchange, error: Error | undefined): void {
    if (pending.over) return;
    pending.delivered = exchange.started;
    const { server } = this.#around;
    if (error === undefined && !exchange.isStream && this.#isAnswer(exchange, attempt)) {
      this.#calls.receive(exchange.body as string, pending);
      if (pending.over) return;
    }
    if (this.#tryAgain(pending, attempt, exchange)) return;
    const fault = error === undefined ? undefined : faultOfError(server, exchange, error);
    const canResume = exchange.lastEventId !== undefined && !attempt.isModern && fault?.type !== "TooLarge";
    if (canResume) void this.#resume(pending, exchange);
    else if (fault !== undefined) pending.fail(fault);
    else if (exchange.isStream) {
      pending.fail(withStatus(lost(server, true, "its event stream ended without an answer"), exchange.status));
    } else pending.fail(faultOfStatus(server, exchange));
  }

  /** Some statuses speak for themselves, whatever the body says; others count only with a JSON-RPC message inside. */
  #isAnswer(exchange: Exchange, { session }: Attempt): boolean {
    const { status, body } = exchange;
    if (status === 401 || status === 403 || (status === 404 && session.id !== undefined)) return false;
    if (body === undefined || body === "" || !isType(exchange.headers, "application/json")) return false;
    return status < 300 || isResponse(body, this.#around.limits.maxDepth);
  }

  /** Once: with a new session when ours was lost, with other credentials when they were refused. */
  #tryAgain(pending: PendingRequest, attempt: Attempt, exchange: Exchange): boolean {
    if (attempt.isSecond) return false;
    const { status, headers } = exchange;
    const giveUp = (error: unknown): void => pending.fail(asServerFault(this.#around.server, error, false));
    const again = (isWorthIt: boolean, session = attempt.session): void => {
      if (!isWorthIt) return pending.fail(faultOfStatus(this.#around.server, exchange));
      // The second answer may come from another process.
      this.#events
        .mayResend(pending.call)
        .then(() => this.#send(pending, { ...attempt, session, isSecond: true }), giveUp);
    };
    if (status === 404 && attempt.session.id !== undefined) {
      this.#renew(attempt.session).then(() => again(true, this.#session), giveUp);
      return true;
    }
    const refused = this.#credentials?.refused;
    if ((status !== 401 && status !== 403) || refused === undefined) return false;
    const { "www-authenticate": challenge, "dpop-nonce": nonce } = headers;
    const wwwAuthenticate = typeof challenge === "string" ? challenge : undefined;
    const dpopNonce = typeof nonce === "string" ? nonce : undefined;
    refused.call(this.#credentials, { status, wwwAuthenticate, dpopNonce }).then((isNew) => again(isNew), giveUp);
    return true;
  }

  /** The answer's stream broke, and the server numbers its events: the rest can be asked for. */
  async #resume(pending: PendingRequest, from: Exchange): Promise<void> {
    const stop = new AbortController();
    pending.exchange = { abort: () => stop.abort() };
    await follow({
      open: (lastEventId, sink) => this.#get(lastEventId, sink),
      message: (text) => {
        this.#calls.receive(text, pending);
        if (pending.over) stop.abort();
      },
      from: { lastEventId: from.lastEventId, retryMs: from.retryMs },
      stop: stop.signal,
      maxFailures: this.#around.limits.maxResumes,
    }).catch(() => {});
    pending.fail(lost(this.#around.server, true, "its event stream broke and could not be picked up again"));
  }

  #onGaveUp(pending: PendingRequest, reason: string): void {
    pending.exchange?.abort();
    if (this.#agreement?.revision.era !== "legacy" || !pending.delivered) return;
    const params = JSON.stringify({ requestId: pending.id, reason });
    void this.#post(notificationText("notifications/cancelled", params)).catch(() => {});
  }

  // ---- messages that are not calls

  async #headers(method: "POST" | "GET" | "DELETE", accept: string): Promise<string[]> {
    const headers = ["accept", accept];
    addHeaders(headers, await this.#credentials?.headers(method));
    addHeaders(headers, this.#session.headers);
    return headers;
  }

  async #post(body: string): Promise<void> {
    const headers = await this.#headers("POST", "application/json, text/event-stream");
    headers.push("content-type", "application/json");
    if (this.#client === undefined || this.#closed) throw serverUnavailable(this.#around.server, "it has been stopped");
    await sendAndForget(this.#client, { method: "POST", headers, body });
  }

  async #get(lastEventId: string | undefined, sink: Parameters<HttpPort["send"]>[1]): Promise<Exchange> {
    const headers = await this.#headers("GET", "text/event-stream");
    if (lastEventId !== undefined) headers.push("last-event-id", lastEventId);
    return (this.#client as HttpPort).send({ method: "GET", headers }, sink);
  }

  async #goodbye(): Promise<void> {
    const headers = await this.#headers("DELETE", "application/json").catch(() => []);
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, GOODBYE_MS);
    });
    // A server that cannot be told will forget the session by itself.
    await Promise.race([sendAndForget(this.#client as HttpPort, { method: "DELETE", headers }), enough]);
    clearTimeout(timer);
  }

  #lose(fault: Fault): void {
    if (this.#closed) return;
    this.#events.lost(fault);
    void this.close().catch(() => {});
  }
}

const FIRST: Omit<Attempt, "meta" | "isModern"> = { session: NO_SESSION, isSecond: false };

function isResponse(body: string, maxDepth: number): boolean {
  try {
    const received = readMessage(body, maxDepth);
    return "message" in received && received.message.kind === "response";
  } catch {
    return false;
  }
}
