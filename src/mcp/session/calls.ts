// The calls in flight on one connection, and whose each arriving message is. An answer counts for the call with its
// id, once. Everything else a server says belongs to exactly one call, or is about a list, or is refused.

import {
  Fault,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  META,
  type Notification,
  type Request,
  type Response,
} from "../index.js";
import { ClientRequests } from "./client-requests.js";
import { nonsense, tooLarge, tooMany } from "./faults.js";
import { ByteRate, type OnOver, PendingRequest, PendingTable } from "./pending.js";
import { MAX_ANSWER_VALUES, MAX_LIST_VALUES, type Received, readMessage, TooDeep, TooManyValues } from "./text.js";
import type {
  ConnectionEvents,
  ListenEvents,
  ServerErrorObject,
  SessionCall,
  SessionChange,
  SessionContext,
} from "./types.js";

interface CallsEvents extends Pick<ConnectionEvents, "change" | "ask" | "notification" | "unexpectedRequest"> {
  /** An answer to the server, or that a call was given up. */
  send(text: string): void;
  gaveUp(pending: PendingRequest, why: string): void;
  /** The server talks so much nonsense that it cannot be worked with. */
  hopeless(fault: Fault): void;
}

/** For so long after we gave up a call, a server that never answered it may still speak for it. */
const ABANDONED_MS = 30_000;
const MAX_ABANDONED = 1_000;
/** The id of an answer that is not read is looked for in its beginning. */
const MAX_HINT_CHARS = 4_096;
/** Room enough that a few long calls do not crowd the others. */
const SLOTS_PER_CALL = 4;
/** Lists, subscriptions and the like, which wait for no turn. */
const SLOTS_OF_OUR_OWN = 64;

const MADE_FOR_CALLERS: ReadonlySet<string> = new Set([
  "tools/call",
  "prompts/get",
  "resources/read",
  "completion/complete",
]);

const LISTS: ReadonlyMap<string, SessionChange> = new Map([
  ["notifications/tools/list_changed", "tools"],
  ["notifications/prompts/list_changed", "prompts"],
  ["notifications/resources/list_changed", "resources"],
]);

export class Calls {
  /** The handshake revisions alone let a server ask. */
  mayAsk = false;
  /** Batches are read unless the revision has none. */
  mayBatch = true;
  readonly #around: SessionContext;
  readonly #events: CallsEvents;
  readonly #questions: ClientRequests;
  readonly #pending: PendingTable;
  readonly #listens = new Map<number, ListenEvents>();
  readonly #abandoned = new Map<number, Abandoned>();
  readonly #nonsense: ByteRate;
  readonly #unowned: ByteRate;
  #isHopeless = false;
  /** Requests in flight that no caller made: lists, above all. */
  #ownRequests = 0;

  constructor(around: SessionContext, events: CallsEvents) {
    this.#around = around;
    this.#events = events;
    this.#pending = new PendingTable(SLOTS_PER_CALL * around.limits.maxInFlight + SLOTS_OF_OUR_OWN);
    this.#nonsense = new ByteRate(around.limits.maxNonsense);
    this.#unowned = new ByteRate(around.limits.maxMessagesPerCall);
    this.#questions = new ClientRequests(around, (text) => events.send(text), events.ask);
  }

  get size(): number {
    return this.#pending.size;
  }

  begin(call: SessionCall): PendingRequest {
    const id = this.#pending.nextId();
    const pending = new PendingRequest(id ?? 0, call, this.#around, this.#onOver);
    if (id === undefined) pending.fail(tooMany(this.#around.server, "too many requests to it are under way"));
    else if (!pending.over) {
      this.#pending.add(pending);
      if (isOwn(pending)) this.#ownRequests++;
    }
    return pending;
  }

  /** A request that stays open and is about no call of anybody; `acknowledged` when the server has taken it on. */
  beginListen(call: SessionCall, events: ListenEvents): PendingRequest {
    const pending = this.begin(call);
    if (pending.over) return pending;
    this.#listens.set(pending.id, events);
    return pending;
  }

  failAll(toFault: (pending: PendingRequest) => Fault): void {
    for (const pending of this.#pending) pending.fail(toFault(pending));
    this.#questions.close();
  }

  /** Every request in flight is given up, and the server is told. */
  stopAll(fault: Fault): void {
    for (const pending of this.#pending) pending.stop(fault);
  }

  /**
   * One text from the server. `owner` is the call whose HTTP response it came in, `null` an HTTP stream that is not at at a
   * call's, undefined a connection that all calls share.
   */
  receive(text: string, owner?: PendingRequest | null): void {
    let received: Received | readonly Received[];
    try {
      const mayBeList = owner ? isOwn(owner) : this.#ownRequests > 0;
      const { maxDepth, maxValues = mayBeList ? MAX_LIST_VALUES : MAX_ANSWER_VALUES } = this.#around.limits;
      received = readMessage(text, maxDepth, maxValues);
    } catch (error) {
      const why = (error as Error).message;
      if (!(error instanceof TooManyValues) || owner) {
        const isNamed = owner === undefined && error instanceof TooDeep;
        if (isNamed) this.#pending.get(idOfUnreadable(text))?.fail(tooLarge(this.#around.server, why, true));
        return this.malformed(why, owner ?? undefined);
      }
      return this.oversized(text.slice(0, MAX_HINT_CHARS), () => tooLarge(this.#around.server, why, true));
    }
    if (!("message" in received) && !this.mayBatch) this.malformed("a batch, which the revision does not have");
    else if (!("message" in received)) for (const one of received) this.#handle(one, owner);
    else this.#handle(received, owner);
  }

  /** Bytes that are no message. Only where they came in the response to one call is it known who suffers. */
  malformed(why: string, owner?: PendingRequest): void {
    this.#around.counts.malformed++;
    owner?.fail(nonsense(this.#around.server, why));
    this.#countNonsense(why);
  }

  /** A message that was too large to read; `hint` is what is known of it. */
  oversized(hint: string, toFault: () => Fault): void {
    this.#around.counts.malformed++;
    const id = /"id"\s*:\s*(\d{1,15})\s*[,}]/.exec(hint)?.[1];
    const named = id === undefined ? undefined : this.#pending.get(Number(id));
    (named ?? this.#only())?.fail(toFault());
    this.#countNonsense("a message over the size limit");
  }

  #handle({ message, text, values }: Received, owner: PendingRequest | null | undefined): void {
    switch (message.kind) {
      case "response":
        return this.#onResponse(message.message, text, values, owner);
      case "notification":
        return this.#onNotification(message.message, owner);
      case "request":
        return this.#onRequest(message.message, owner);
      case "invalid": {
        const named = this.#pending.get(message.id);
        const whose = owner === undefined ? named : (owner ?? undefined);
        return this.malformed(message.fault.message, whose);
      }
    }
  }

  #onResponse(response: Response, text: string, values: number, owner: PendingRequest | null | undefined): void {
    const pending = this.#asked(response, owner);
    if (pending === undefined || pending.over) {
      this.#around.counts.strayAnswers++;
      const late = typeof response.id === "number" && this.#abandoned.delete(response.id);
      if (!late) this.#countNonsense("an answer to nothing that was asked");
      return;
    }
    if ("error" in response) this.#answerError(pending, text, response.error);
    else pending.answer({ kind: "result", text, value: response.result, values });
  }

  #answerError(pending: PendingRequest, text: string, error: ServerErrorObject): void {
    const status = pending.exchange?.status;
    pending.answer({ kind: "error", text, error, ...(status === undefined ? {} : { status }) });
  }

  #asked(response: Response, owner: PendingRequest | null | undefined): PendingRequest | undefined {
    if (owner === null) return undefined;
    const isNameless = response.id === null || response.id === undefined;
    if (owner === undefined) return isNameless ? this.#alone() : this.#pending.get(response.id);
    // An error without an id is the answer to the request it came in response to; an answer to another one is not.
    return isNameless || response.id === owner.id ? owner : undefined;
  }

  /** An error without an id can only be meant for the one request there is. */
  #alone(): PendingRequest | undefined {
    if (this.#pending.size - this.#listens.size !== 1) return undefined;
    for (const pending of this.#pending) if (!this.#listens.has(pending.id)) return pending;
    return undefined;
  }

  #onNotification(message: Notification, owner: PendingRequest | null | undefined): void {
    const params = message.params ?? {};
    const { notification } = this.#events;
    const change = LISTS.get(message.method);
    if (change !== undefined) return this.#onChange(change, params);
    switch (message.method) {
      case "notifications/resources/updated":
        if (typeof params.uri === "string") this.#onChange({ resource: params.uri }, params);
        else notification?.(message);
        return;
      case "notifications/progress":
        return this.#onProgress(params, owner);
      case "notifications/message":
        return notification ? notification(message) : this.#toOwner(owner, (pending) => pending.log(params));
      case "notifications/cancelled": {
        const listen = typeof params.requestId === "number" ? this.#listens.get(params.requestId) : undefined;
        if (listen?.ended) return listen.ended();
        this.#questions.withdraw(params.requestId);
        return notification?.(message);
      }
      case "notifications/subscriptions/acknowledged": {
        const id = subscriptionIn(params);
        this.#listens.get(typeof id === "number" ? id : (owner?.id ?? -1))?.acknowledged(params);
        return;
      }
      default:
        if (notification) notification(message);
        else this.#refuse();
    }
  }

  #onChange(change: SessionChange, params: JsonObject): void {
    if (this.#events.notification === undefined) this.#countUnowned();
    const id = subscriptionIn(params);
    this.#events.change(change, id !== undefined);
    if (typeof id === "number") this.#listens.get(id)?.change?.(change);
  }

  #refuse(): void {
    this.#around.counts.refusedMessages++;
    this.#countUnowned();
  }

  #onProgress(params: JsonObject, owner: PendingRequest | null | undefined): void {
    const pending = this.#pending.get(params.progressToken);
    const isTheirs = pending !== undefined && (owner === undefined || owner === null || owner === pending);
    if (isTheirs && typeof params.progress === "number") pending.progress(params);
    else this.#refuse();
  }

  #onRequest(request: Request, owner: PendingRequest | null | undefined): void {
    const whose = owner ?? this.#onlyCall();
    if (whose === undefined) this.#countUnowned();
    if (this.mayAsk) this.#questions.ask(request, whose);
    else {
      this.#events.unexpectedRequest?.();
      this.#refuse();
    }
  }

  #toOwner(owner: PendingRequest | null | undefined, tell: (pending: PendingRequest) => void): void {
    const pending = owner ?? this.#onlyCall();
    if (pending === undefined) this.#refuse();
    else tell(pending);
  }

  /** The one request that a message without a name can be about: none other is in flight, and none was just given up. */
  #only(): PendingRequest | undefined {
    if (this.#pending.size - this.#listens.size !== 1 || this.#abandonedByOther(undefined)) return undefined;
    for (const pending of this.#pending) if (!this.#listens.has(pending.id)) return pending;
    return undefined;
  }

  /**
   * The same among what callers asked for: our own lists are made for no caller, and no server asks anything for them. Of
   * several calls of one client the one that was asked least, the oldest first.
   */
  #onlyCall(): PendingRequest | undefined {
    let only: PendingRequest | undefined;
    for (const pending of this.#pending) {
      if (!MADE_FOR_CALLERS.has(pending.call.method)) continue;
      if (only === undefined) only = pending;
      else if (!isSameClient(only.call.client, pending.call.client)) return undefined;
      else if (isBefore(pending, only)) only = pending;
    }
    return only === undefined || this.#abandonedByOther(only.call.client) ? undefined : only;
  }

  /** Another call in flight of the same client. */
  #callLike({ call }: PendingRequest): PendingRequest | undefined {
    let found: PendingRequest | undefined;
    for (const pending of this.#pending) {
      const isLike = MADE_FOR_CALLERS.has(pending.call.method) && isSameClient(call.client, pending.call.client);
      if (isLike && (found === undefined || isBefore(pending, found))) found = pending;
    }
    return found;
  }

  /** A call of another client was just given up, and the server may still speak for it. */
  #abandonedByOther(client: string | undefined): boolean {
    const now = performance.now();
    for (const [id, abandoned] of this.#abandoned) {
      if (abandoned.until <= now) this.#abandoned.delete(id);
      else if (!isSameClient(client, abandoned.client)) return true;
    }
    return false;
  }

  readonly #onOver: OnOver = (pending, gaveUp) => {
    if (this.#pending.remove(pending) && isOwn(pending)) this.#ownRequests--;
    const isListen = this.#listens.delete(pending.id);
    if (pending.questions > 0)
      this.#questions.endOf(pending, gaveUp === undefined ? this.#callLike(pending) : undefined);
    if (gaveUp === undefined) return;
    if (!isListen && pending.delivered) this.#abandon(pending);
    this.#events.gaveUp(pending, gaveUp);
  };

  #abandon({ id, call }: PendingRequest): void {
    if (this.#abandoned.size >= MAX_ABANDONED) {
      for (const oldest of this.#abandoned.keys()) {
        this.#abandoned.delete(oldest);
        break;
      }
    }
    this.#abandoned.set(id, { until: performance.now() + ABANDONED_MS, client: call.client });
  }

  #countNonsense(why: string): void {
    if (!this.#nonsense.take()) this.#giveUp(`it keeps sending messages that are not answers; the last was: ${why}`);
  }

  /** What no call has to answer for. */
  #countUnowned(): void {
    if (!this.#unowned.take()) this.#giveUp("it sends messages without end that belong to no call");
  }

  #giveUp(why: string): void {
    if (this.#isHopeless) return;
    this.#isHopeless = true;
    this.#events.hopeless(nonsense(this.#around.server, why));
  }
}

interface Abandoned {
  readonly until: number;
  readonly client: string | undefined;
}

function isBefore(one: PendingRequest, other: PendingRequest): boolean {
  return one.asked === other.asked ? one.id < other.id : one.asked < other.asked;
}

function isSameClient(one: string | undefined, other: string | undefined): boolean {
  return one !== undefined && one === other;
}

/** The listen request that a notification names. */
function subscriptionIn({ _meta: meta }: JsonObject): JsonValue | undefined {
  return isJsonObject(meta) ? meta[META.subscriptionId] : undefined;
}

/** Not a call of a caller, and not a stream that stays open. */
function isOwn({ call }: PendingRequest): boolean {
  return !MADE_FOR_CALLERS.has(call.method) && call.method !== "subscriptions/listen";
}

/** Whose answer this was, in the two ways that servers write one, when the rest of it cannot be read. */
function idOfUnreadable(text: string): number | undefined {
  const first = /^\{"jsonrpc":"2\.0","id":(\d{1,15}),"(?:result|error)":/.exec(text.slice(0, 60));
  const last = /^\{"(?:result|error)":/.test(text) ? /,"id":(\d{1,15})\}$/.exec(text.slice(-40)) : null;
  const id = (first ?? last)?.[1];
  return id === undefined ? undefined : Number(id);
}
