// One server, one agreed revision: every request framed the way that revision wants it, sessions kept alive and
// renewed when the server lost them, questions from the server answered.

import { createRequire } from "node:module";
import { Fault, type JsonObject, type Notification, type Request } from "../index.js";
import type { Implementation, LogLevel } from "../server/index.js";
import type { ClientTransport, TransportKind } from "../transports/index.js";
import { type WireDialect, modernDialect, type WireSession } from "./dialect.js";
import { McpError, ProtocolError } from "./errors.js";
import { answerInput, clientCapabilities } from "./inputs.js";
import { type ClientAnswer, type Ask, ClientSession, type ClientSessionStats } from "./link.js";
import { type ClientAgreement, type Discovery, initialize, negotiateClient, type ClientTerms } from "./negotiate.js";
import {
  type ClientLimits,
  type ConnectOptions,
  DEFAULT_CLIENT_LIMITS,
  DEFAULT_TIMEOUTS,
  type RequestOptions,
  type Timeouts,
} from "./options.js";
import { ServerRequests } from "./client-requests.js";
import { factsOf, MODERN_NAME, type RevisionName } from "./revision.js";
import { listenStream, resumeStream } from "./streams.js";

export interface HowToAsk extends RequestOptions {
  timeoutMs: number;
  argumentsText?: string;
  headers?: Readonly<Record<string, string>>;
}

export interface ConversationStats extends ClientSessionStats {
  /** Requests from a server whose revision has none. */
  unexpectedRequests: number;
}

export interface ConversationEvents {
  notification(message: Notification): void;
  /** The server had lost the session and a new one began: what was asked of the old one has to be asked again. */
  renewed(): void;
}

/** How long a connection waits for the server's own stream before it goes on without. */
const STREAM_MS = 500;
/** How long a session's end may take to be told. */
const GOODBYE_MS = 2_000;

export class ClientConversation {
  readonly limits: ClientLimits;
  readonly timeouts: Timeouts;
  readonly #options: ConnectOptions;
  readonly #link: ClientSession;
  readonly #questions: ServerRequests;
  readonly #events: ConversationEvents;
  readonly #over = new AbortController();
  readonly #terms: ClientTerms;
  readonly #isHttp: boolean;
  #agreement: ClientAgreement | undefined;
  #renewal: Promise<void> | undefined;
  #stopListening = new AbortController();
  #unexpectedRequests = 0;
  logLevel: LogLevel | undefined;

  constructor(transport: ClientTransport, options: ConnectOptions, events: ConversationEvents) {
    this.limits = { ...DEFAULT_CLIENT_LIMITS, ...options.limits };
    this.timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts };
    this.logLevel = options.logLevel;
    this.#options = options;
    this.#events = events;
    this.#isHttp = transport.kind === "http";
    this.#link = new ClientSession(transport, this.limits, {
      request: (message) => this.#onRequest(message),
      notification: (message) => this.#onNotification(message),
      closed: (error) => this.#onClosed(error),
    });
    this.#questions = new ServerRequests({
      handlers: options.handlers ?? {},
      maxAtOnce: this.limits.maxInputs,
      inputMs: this.timeouts.inputMs,
      send: (text) => void this.#sendQuietly(text),
    });
    this.#terms = this.#makeTerms();
  }

  async open(): Promise<void> {
    try {
      await this.#link.start();
      await this.#adopt(await negotiateClient(this.#link, this.#terms));
    } catch (error) {
      await this.#link.close().catch(() => {});
      throw asMcpError(error);
    }
  }

  get agreement(): ClientAgreement {
    if (!this.#agreement) throw new ProtocolError("WrongPhase", "the connection is not open yet");
    return this.#agreement;
  }

  get revision(): RevisionName {
    return this.agreement.revision;
  }

  get discovery(): Discovery {
    return this.agreement.discovery;
  }

  /** Closed, by either side. */
  get over(): boolean {
    return this.#over.signal.aborted;
  }

  get isHttp(): boolean {
    return this.#isHttp;
  }

  get transport(): TransportKind {
    return this.#link.transport.kind;
  }

  get stats(): ConversationStats {
    return { ...this.#link.stats, unexpectedRequests: this.#unexpectedRequests };
  }

  async request(method: string, params: JsonObject, how: HowToAsk): Promise<JsonObject> {
    const { result } = await this.#inSession(async () => this.#link.request(await this.#ask(method, params, how)));
    return result;
  }

  /** A request that stays open until its signal; `onId` says under which id, before it is sent. */
  async hold(
    method: string,
    params: JsonObject,
    signal: AbortSignal,
    onId: (id: number) => void,
  ): Promise<ClientAnswer> {
    return this.#link.open({ ...(await this.#ask(method, params, { timeoutMs: 0, signal })), signal }, onId);
  }

  /** One JSON-RPC batch; answers in order. Only where the revision has batches. */
  async batch(
    calls: readonly { method: string; params: JsonObject; how: HowToAsk }[],
  ): Promise<Promise<ClientAnswer>[]> {
    const asks = await Promise.all(calls.map(({ method, params, how }) => this.#ask(method, params, how)));
    return this.#link.batch(asks);
  }

  async notify(method: string, params: JsonObject = {}): Promise<void> {
    await this.#link.notify({ jsonrpc: "2.0", method, params }, await this.#plainHeaders());
  }

  /** Answers a question that came inside an answer. */
  async answer(method: string, params: JsonObject, signal: AbortSignal | undefined): Promise<JsonObject> {
    const limit = AbortSignal.timeout(this.timeouts.inputMs);
    const stop = signal
      ? AbortSignal.any([signal, limit, this.#over.signal])
      : AbortSignal.any([limit, this.#over.signal]);
    const stopped = new Promise<never>((_, reject) => {
      const why = (): void => reject(new ProtocolError("Cancelled", `\`${method}\` was not answered in time`));
      if (stop.aborted) why();
      else stop.addEventListener("abort", why, { once: true });
    });
    try {
      return await Promise.race([answerInput(this.#options.handlers ?? {}, method, params, stop), stopped]);
    } catch (error) {
      if (error instanceof McpError) throw error;
      const [type, why] =
        error instanceof Fault ? [error.type, error.message] : ["InternalError" as const, String(error)];
      throw new ProtocolError(type, `the server asked for \`${method}\`, and there is no answer: ${why}`, {
        cause: error,
      });
    }
  }

  async close(): Promise<void> {
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    this.#stopListening.abort();
    this.#questions.close();
    await this.#endSession();
    await this.#link.close();
  }

  async #ask(method: string, params: JsonObject, how: HowToAsk): Promise<Ask> {
    const { dialect } = this.agreement;
    const withMeta = how.meta
      ? { ...params, _meta: { ...(params._meta as JsonObject | undefined), ...how.meta } }
      : params;
    const framed = dialect.frame(method, withMeta);
    const headers = this.#isHttp ? { ...(await this.#terms.headers()), ...framed.headers, ...how.headers } : undefined;
    return {
      method,
      params: framed.params,
      timeoutMs: how.timeoutMs,
      totalMs: Math.max(this.timeouts.totalMs, how.timeoutMs),
      cancel: (id, reason) => this.#cancel(id, reason),
      ...(headers ? { headers } : {}),
      ...(how.argumentsText === undefined ? {} : { argumentsText: how.argumentsText }),
      ...(how.signal ? { signal: how.signal } : {}),
      ...(how.onProgress ? { onProgress: how.onProgress } : {}),
      ...(dialect.era === "legacy" && this.#isHttp
        ? { resume: (sent, signal) => resumeStream(sent, this.#follow(signal)) }
        : {}),
    };
  }

  /** On HTTP 2026-07-28 takes the closed stream for the word; everywhere else the word has to be said. */
  #cancel(requestId: number, reason: string): void {
    if (this.agreement.dialect.era === "modern" && this.#isHttp) return;
    this.notify("notifications/cancelled", { requestId, reason }).catch(() => {});
  }

  /** A 404 for a request in a session means that the server lost it: begin a new one and ask again, once. */
  async #inSession<T>(ask: () => Promise<T>): Promise<T> {
    const session = this.agreement.session;
    const sessionId = session?.id;
    try {
      return await ask();
    } catch (error) {
      const lost = sessionId !== undefined && error instanceof McpError && error.status === 404;
      if (!lost) throw error;
      await this.#renew(session);
      return ask();
    }
  }

  async #renew(lost: WireSession | undefined): Promise<void> {
    if (this.agreement.session !== lost) return;
    this.#renewal ??= (async () => {
      try {
        await this.#adopt(await initialize(this.#link, this.#terms, this.revision));
        this.#events.renewed();
      } finally {
        this.#renewal = undefined;
      }
    })();
    await this.#renewal;
  }

  async #adopt(agreement: ClientAgreement): Promise<void> {
    this.#agreement = agreement;
    this.#link.batches = factsOf(agreement.revision).batches;
    if (!agreement.session || !this.#isHttp) return;
    // Servers of the handshake revisions ask and tell some things on a stream of their own, and what they say before
    // it is open is lost. So it is opened first; servers without one refuse it, and a silent one is not waited for.
    this.#stopListening.abort();
    this.#stopListening = new AbortController();
    const { signal } = this.#stopListening;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, STREAM_MS);
      const onAnswered = (): void => {
        clearTimeout(timer);
        resolve();
      };
      listenStream({ ...this.#follow(signal), onAnswered }).then(onAnswered, onAnswered);
    });
  }

  #follow(signal: AbortSignal): Parameters<typeof listenStream>[0] {
    return {
      transport: this.#link.transport,
      headers: () => this.#plainHeaders(),
      signal,
      maxFailures: this.limits.maxResumes,
    };
  }

  #onRequest(message: Request): void {
    if (this.#agreement?.dialect.era === "legacy") this.#questions.ask(message);
    else this.#unexpectedRequests++;
  }

  #onNotification(message: Notification): void {
    if (message.method === "notifications/cancelled") this.#questions.withdraw(message.params?.requestId);
    this.#events.notification(message);
  }

  #onClosed(error?: Error): void {
    this.#over.abort();
    this.#stopListening.abort();
    this.#questions.close();
    this.#options.onClose?.(error);
  }

  async #sendQuietly(text: string): Promise<void> {
    // An answer that cannot be delivered is the server's loss; it will notice.
    await this.#link.send(text, await this.#plainHeaders()).catch(() => {});
  }

  async #endSession(): Promise<void> {
    const id = this.#agreement?.session?.id;
    if (id === undefined || this.#link.closed) return;
    const signal = AbortSignal.timeout(GOODBYE_MS);
    try {
      const sent = await this.#link.transport.send("", { verb: "DELETE", headers: await this.#plainHeaders(), signal });
      await sent.done;
    } catch {
      // A server that cannot be told will forget the session by itself.
    }
  }

  async #plainHeaders(): Promise<Record<string, string>> {
    if (!this.#isHttp) return {};
    return { ...(await this.#terms.headers()), ...this.#agreement?.dialect.plainHeaders() };
  }

  #makeTerms(): ClientTerms {
    const { handlers = {}, capabilities = {}, headers = {} } = this.#options;
    const clientInfo = this.#options.clientInfo ?? defaultClientInfo();
    const capabilitiesOf = (revision: RevisionName): JsonObject => clientCapabilities(handlers, capabilities, revision);
    const modern: WireDialect = modernDialect({
      clientInfo,
      capabilities: capabilitiesOf(MODERN_NAME),
      logLevel: () => this.logLevel,
      http: this.#isHttp,
    });
    return {
      revision: this.#options.revision,
      clientInfo,
      capabilities: capabilitiesOf,
      modern,
      timeouts: this.timeouts,
      headers: async () => (this.#isHttp ? { ...(typeof headers === "function" ? await headers() : headers) } : {}),
    };
  }
}

function defaultClientInfo(): Implementation {
  const { name, version } = createRequire(import.meta.url)("../../../package.json") as Implementation;
  return { name, version };
}

function asMcpError(error: unknown): Error {
  return error instanceof McpError
    ? error
    : new ProtocolError("IoError", String((error as Error)?.message), { cause: error });
}
