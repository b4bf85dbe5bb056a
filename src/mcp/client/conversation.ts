// One server, one agreed revision: the session engine with the options, the errors and the handlers of a client.

import { createRequire } from "node:module";
import {
  Fault,
  isJsonObject,
  type JsonObject,
  META,
  MODERN,
  type Notification,
  REVISIONS,
  type Revision,
  revisionNamed,
  unsendable,
} from "../index.js";
import type { Implementation, LogLevel } from "../server/index.js";
import {
  type ConnectionEvents,
  cancellation,
  HttpSessionConnection,
  httpPortOf,
  PersistentConnection,
  PersistentPort,
  PROTOCOL_META,
  type SessionAgreement,
  type SessionAnswer,
  type SessionCall,
  type SessionChange,
  type SessionContext,
  type SessionTerms,
  timedOut,
} from "../session/index.js";
import type { ClientTransport, TransportKind } from "../transports/index.js";
import { errorFromAnswer, errorFromFault, McpError, ProtocolError } from "./errors.js";
import { nameIn } from "./headers.js";
import { answerInput, clientCapabilities } from "./inputs.js";
import {
  type ClientLimits,
  type ConnectOptions,
  DEFAULT_CLIENT_LIMITS,
  DEFAULT_TIMEOUTS,
  type Progress,
  type RequestOptions,
  type Timeouts,
} from "./options.js";
import type { ChangeEvent } from "./subscriptions.js";

export interface HowToAsk extends RequestOptions {
  timeoutMs: number;
  /** Canonical text of `params.arguments`, sent as it is; `params` then has no arguments of its own. */
  argumentsText?: string;
  headers?: Readonly<Record<string, string>>;
}

export interface ConversationStats {
  /** Answers that fit no request under way: late, repeated, or made up. */
  strayAnswers: number;
  /** Texts that are not JSON-RPC messages. */
  malformed: number;
  /** Requests from a server whose revision has none. */
  unexpectedRequests: number;
}

interface ConversationEvents {
  notification(message: Notification): void;
  /** `isAddressed`: one listen request has received it already. */
  change(change: ChangeEvent, isAddressed: boolean): void;
  /** The server had lost the session and a new one began: what was asked of the old one has to be asked again. */
  renewed(): void;
}

/** Malformed messages and stray answers in ten seconds; more end the connection. */
const MAX_NONSENSE = 100;
/** Messages before the answer of one request in ten seconds; more end the request. */
const MAX_MESSAGES = 10_000;
const MAX_UNSENT_BYTES = 16 * 1024 * 1024;
/** The levels that stand around the parameters: the message itself, and a batch. */
const AROUND_PARAMS = 2;

export class ClientConversation {
  readonly limits: ClientLimits;
  readonly timeouts: Timeouts;
  readonly transport: TransportKind;
  readonly #options: ConnectOptions;
  readonly #connection: PersistentConnection | HttpSessionConnection;
  readonly #slots: Slots;
  readonly #over = new AbortController();
  readonly #context: SessionContext;
  readonly #capabilities: string;
  #isClosed = false;
  #unexpectedRequests = 0;
  logLevel: LogLevel | undefined;

  constructor(transport: ClientTransport, options: ConnectOptions, events: ConversationEvents) {
    this.limits = { ...DEFAULT_CLIENT_LIMITS, ...options.limits };
    this.timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts };
    this.transport = transport.kind;
    this.logLevel = options.logLevel;
    this.#options = options;
    this.#slots = new Slots(this.limits.maxInFlight, this.limits.maxQueued);
    this.#capabilities = JSON.stringify(this.#capabilitiesOf(MODERN));
    this.#context = this.#makeContext();
    const { handlers = {} } = options;
    const session: ConnectionEvents = {
      change: (change, isAddressed) => events.change(changeEvent(change), isAddressed),
      renewed: () => events.renewed(),
      disconnected: () => {},
      mayResend: async () => {},
      lost: (fault) => this.#onLost(fault),
      ask: (method, params, stop) => answerInput(handlers, method, params, stop),
      notification: (message) => events.notification(message),
      unexpectedRequest: () => {
        this.#unexpectedRequests++;
      },
    };
    this.#connection = this.isHttp
      ? new HttpSessionConnection(httpPortOf(transport), { headers: () => this.#headers() }, this.#context, session)
      : new PersistentConnection(new PersistentPort(transport), this.#context, session);
  }

  async open(): Promise<void> {
    try {
      await this.#connection.open(this.#terms());
    } catch (error) {
      await this.#connection.close().catch(() => {});
      throw errorFromFault(error, "initialize");
    }
  }

  get revision(): Revision {
    return this.#agreement.revision;
  }

  get discovery(): Discovery {
    const { revision, result } = this.#agreement;
    const supportedVersions = revision.era === "legacy" ? [revision.name] : result.supportedVersions;
    return { ...(readDiscovery({ ...result, supportedVersions } as JsonObject) as Discovery), result };
  }

  /** Closed, by either side. */
  get over(): boolean {
    return this.#over.signal.aborted;
  }

  get isHttp(): boolean {
    return this.transport === "http";
  }

  get stats(): ConversationStats {
    const { strayAnswers, malformed } = this.#context.counts;
    return { strayAnswers, malformed, unexpectedRequests: this.#unexpectedRequests };
  }

  async request(method: string, params: JsonObject, how: HowToAsk): Promise<JsonObject> {
    const sentAt = performance.now();
    if (!this.#slots.take()) await this.#turn(method, how);
    try {
      const leftMs = how.timeoutMs - (performance.now() - sentAt);
      return await this.#ask(method, params, { ...how, timeoutMs: Math.max(1, leftMs) }, how.timeoutMs, (call) =>
        this.#connection.call(call),
      );
    } finally {
      this.#slots.give();
    }
  }

  /** A request that stays open until its signal. */
  async hold(
    method: string,
    params: JsonObject,
    signal: AbortSignal,
    {
      acknowledged,
      change,
      ended,
    }: { acknowledged(params: JsonObject): void; change(change: ChangeEvent): void; ended(): void },
  ): Promise<JsonObject> {
    const more = { change: (each: SessionChange) => change(changeEvent(each)), ended };
    return this.#ask(method, params, { timeoutMs: 0, signal }, 0, (call) =>
      this.#connection.listen({ ...call, hooks: undefined }, acknowledged, more),
    );
  }

  /** One JSON-RPC batch; answers in order. Only where the revision has batches. */
  batch(calls: readonly { method: string; params: JsonObject; how: HowToAsk }[]): Promise<JsonObject>[] {
    const batched: { call: SessionCall; settle: (answer: Promise<SessionAnswer>) => void }[] = [];
    const answers = calls.map(({ method, params, how }) =>
      this.#ask(
        method,
        params,
        how,
        how.timeoutMs,
        (call) => new Promise((resolve) => batched.push({ call, settle: resolve })),
      ),
    );
    const sent = batched.length === 0 ? [] : this.#connection.batch(batched.map(({ call }) => call));
    for (const [i, { settle }] of batched.entries()) settle(sent[i] as Promise<SessionAnswer>);
    return answers;
  }

  async notify(method: string, params: JsonObject = {}): Promise<void> {
    try {
      await this.#connection.notify(method, JSON.stringify(params));
    } catch (error) {
      throw errorFromFault(error, method);
    }
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
    if (this.over) return;
    this.#isClosed = true;
    this.#over.abort();
    await this.#connection.close(new Fault("Cancelled", "the client was closed"));
  }

  get #agreement(): SessionAgreement {
    const agreement = this.#connection.agreement as SessionAgreement | undefined;
    if (agreement === undefined) throw new ProtocolError("WrongPhase", "the connection is not open yet");
    return agreement;
  }

  /** Waits for a place among the requests in flight; the wait is part of the request's time. */
  async #turn(method: string, { signal, timeoutMs }: HowToAsk): Promise<void> {
    const limit = AbortSignal.timeout(timeoutMs);
    try {
      await this.#slots.wait(signal ? AbortSignal.any([signal, limit]) : limit);
    } catch (error) {
      if (error instanceof McpError) throw error;
      const why = signal?.aborted ? cancelled(method) : timedOut(this.#context.server, method, undefined, timeoutMs);
      throw errorFromFault(why, method, signal?.reason);
    }
  }

  async #ask(
    method: string,
    params: JsonObject,
    how: HowToAsk,
    givenMs: number,
    send: (call: SessionCall) => Promise<SessionAnswer>,
  ): Promise<JsonObject> {
    if (this.#isClosed) throw new ProtocolError("Cancelled", "the client was closed");
    const { cancel, stop } = cancellation();
    const onAbort = (): void => stop(cancelled(method));
    if (how.signal?.aborted) onAbort();
    how.signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const answer = await send({ ...this.#call(method, params, how), cancel });
      if (answer.kind === "result") return answer.value;
      throw errorFromAnswer(answer.error, method, answer.status);
    } catch (error) {
      const isLate = error instanceof Fault && error.detail.extra?.timedOut === true;
      const fault = isLate ? timedOut(this.#context.server, method, undefined, givenMs) : error;
      throw errorFromFault(fault, method, how.signal?.reason);
    } finally {
      how.signal?.removeEventListener("abort", onAbort);
    }
  }

  #call(method: string, params: JsonObject, how: HowToAsk): SessionCall {
    const { _meta, ...ours } = params;
    const isReported = method === "tools/call" || how.onProgress !== undefined;
    const isModern = this.revision.era === "modern";
    const name = nameIn(method, params);
    return {
      method,
      params: this.#paramsText(method, ours, how.argumentsText),
      ...metaOf({ ...(isJsonObject(_meta) ? _meta : {}), ...how.meta }),
      ...(name === undefined ? {} : { name }),
      ...(how.headers ? { headers: how.headers } : {}),
      ...(isModern ? { capabilities: this.#capabilities } : {}),
      ...(this.logLevel === undefined ? {} : { logLevel: this.logLevel }),
      timeoutMs: how.timeoutMs,
      totalMs: Math.max(this.timeouts.totalMs, how.timeoutMs),
      ...(isReported
        ? { hooks: { progress: (report: JsonObject) => how.onProgress?.(report as unknown as Progress) } }
        : {}),
    };
  }

  #paramsText(method: string, params: JsonObject, argumentsText: string | undefined): string {
    try {
      // The server's own state goes back as it came, whatever it is.
      const { requestState: _opaque, ...ours } = params;
      const problem = unsendable(ours, this.limits.maxDepth - AROUND_PARAMS);
      if (problem) throw new TypeError(`\`${problem.path}\`: ${problem.reason}`);
      return paramsText(params, argumentsText);
    } catch (error) {
      const why = (error as Error).message;
      throw new ProtocolError("InvalidParams", `the parameters of ${method} cannot be sent: ${why}`, { cause: error });
    }
  }

  #onLost(fault: Fault): void {
    this.#over.abort();
    this.#options.onClose?.(errorFromFault(fault, "the connection"));
  }

  async #headers(): Promise<Readonly<Record<string, string>>> {
    const { headers = {} } = this.#options;
    return typeof headers === "function" ? headers() : headers;
  }

  #capabilitiesOf(revision: Revision): JsonObject {
    const { handlers = {}, capabilities = {} } = this.#options;
    return clientCapabilities(handlers, capabilities, revision);
  }

  #makeContext(): SessionContext {
    const { maxMessageBytes, maxDepth, maxInFlight, maxListens, maxBatch, maxInputs, maxResumes } = this.limits;
    return {
      server: this.#options.server ?? "server",
      counts: { strayAnswers: 0, malformed: 0, refusedMessages: 0 },
      limits: {
        maxMessageBytes,
        maxDepth,
        maxValues: Number.POSITIVE_INFINITY,
        maxInFlight: maxInFlight + maxListens + maxBatch,
        maxMessagesPerCall: MAX_MESSAGES,
        maxQuestions: maxInputs,
        maxUnsentBytes: MAX_UNSENT_BYTES,
        maxNonsense: MAX_NONSENSE,
        connections: maxInFlight,
        maxResumes,
      },
      timeouts: { startMs: this.timeouts.connectMs, questionMs: this.timeouts.inputMs },
      budget: undefined,
      share: undefined,
    };
  }

  #terms(): SessionTerms {
    const { clientInfo = defaultClientInfo(), revision } = this.#options;
    const { connectMs, discoveryMs } = this.timeouts;
    return {
      server: this.#context.server,
      clientInfo,
      capabilities: (revision) => this.#capabilitiesOf(revision),
      probe: { capabilities: this.#capabilities, ...(this.logLevel === undefined ? {} : { logLevel: this.logLevel }) },
      revisions: REVISIONS,
      revision: revisionNamed(revision),
      startMs: connectMs,
      discoverMs: discoveryMs,
    };
  }
}

/** `argumentsText` goes in as it is: what was hashed and decided is what the server reads. */
export function paramsText(params: JsonObject, argumentsText: string | undefined): string {
  const rest = JSON.stringify(params);
  if (argumentsText === undefined) return rest;
  return `{"arguments":${argumentsText}${rest === "{}" ? "}" : `,${rest.slice(1)}`}`;
}

/** Entries of the protocol itself are made by the session; a caller's trace context is kept. */
function metaOf(meta: JsonObject): Pick<SessionCall, "meta" | "trace"> {
  const { traceparent, tracestate, baggage } = meta as Record<string, string | undefined>;
  const trace = { traceparent, tracestate, baggage } as NonNullable<SessionCall["trace"]>;
  const others = Object.entries(meta).filter(([key]) => !PROTOCOL_META.has(key));
  return {
    ...(others.length === 0 ? {} : { meta: JSON.stringify(Object.fromEntries(others)) }),
    ...((traceparent ?? tracestate ?? baggage) === undefined ? {} : { trace }),
  };
}

function cancelled(method: string): Fault {
  return new Fault("Cancelled", `${method} was cancelled by the caller`);
}

function defaultClientInfo(): Implementation {
  const { name, version } = createRequire(import.meta.url)("../../../package.json") as Implementation;
  return { name, version };
}

class Slots {
  readonly #max: number;
  readonly #maxQueued: number;
  readonly #queue = new Set<() => void>();
  #running = 0;
  constructor(max: number, maxQueued: number) {
    this.#max = max;
    this.#maxQueued = maxQueued;
  }

  /** True when a turn is free and now the caller's. */
  take(): boolean {
    if (this.#running >= this.#max) return false;
    this.#running++;
    return true;
  }

  /** Resolves when it is this caller's turn. Rejects with the signal's reason, or when the queue is full. */
  wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#queue.size >= this.#maxQueued) {
      const full = `${this.#running} requests are under way and ${this.#queue.size} are waiting; send fewer at once or raise limits.maxInFlight`;
      return Promise.reject(new ProtocolError("TooMany", full));
    }
    return new Promise((resolve, reject) => {
      const turn = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#queue.delete(turn);
        reject(signal.reason);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#queue.add(turn);
    });
  }

  give(): void {
    const next = this.#queue.values().next().value;
    if (next === undefined) {
      this.#running--;
      return;
    }
    // The slot goes over to the next in line, so `running` stays as it is.
    this.#queue.delete(next);
    next();
  }
}

/** What a server says about itself. `serverInfo` is its own word and decides nothing here. */
export interface Discovery {
  supportedVersions: string[];
  capabilities: JsonObject;
  serverInfo?: JsonObject;
  instructions?: string;
  /** The whole answer, with unknown fields. */
  result: JsonObject;
}

export function readDiscovery(result: JsonObject): Discovery | undefined {
  if (!Array.isArray(result.supportedVersions)) return undefined;
  const meta = isJsonObject(result._meta) ? result._meta[META.serverInfo] : undefined;
  const info = isJsonObject(meta) ? meta : result.serverInfo;
  return {
    supportedVersions: result.supportedVersions.filter((version) => typeof version === "string"),
    capabilities: isJsonObject(result.capabilities) ? result.capabilities : {},
    ...(isJsonObject(info) ? { serverInfo: info } : {}),
    ...(typeof result.instructions === "string" ? { instructions: result.instructions } : {}),
    result,
  };
}

function changeEvent(change: SessionChange): ChangeEvent {
  return typeof change === "string" ? { kind: change } : { kind: "resource", uri: change.resource };
}
