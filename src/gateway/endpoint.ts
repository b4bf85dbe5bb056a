// `Endpoint` turns bytes into requests and answers into bytes. It knows revisions, phases and sessions; what a call may do
// is decided in `call`.

import {
  ASSUMED,
  asFault,
  type Classified,
  classify,
  type ErrorType,
  Fault,
  httpStatus,
  isGatewayOutage,
  type JsonObject,
  type JsonValue,
  type Notification,
  NotJsonError,
  parseStrict,
  phaseFault,
  type Request,
  type RequestId,
  type Response,
  type Revision,
  requestIdIn,
  StrictJsonError,
  TooManyValuesError,
} from "../mcp/index.js";
import type { InvokeOptions, ToolResult } from "../mcp/server/index.js";
import type {
  Admission,
  Channel,
  HttpRequest,
  Inbound,
  Malformed,
  Peer,
  Reply,
  TransportHandler,
} from "../mcp/transports/index.js";
import { Cancel, clip, SILENT, toolResultOf } from "../pipeline/index.js";
import type { CheckResult, Principal } from "../policy/index.js";
import { Admissions } from "./admission.js";
import {
  answerRequest,
  authenticateHeader,
  errorText,
  failed,
  type IncomingRequest,
  type RequestOutcome,
  ResultSerializer,
  rejectedTrace,
  retryHeader,
  successText,
  UNANSWERED,
} from "./answer.js";
import type { Gateway } from "./application-types.js";
import { Expiries } from "./expiry.js";
import { FlowControl } from "./flow-control.js";
import { Handshakes } from "./handshakes.js";
import { callNamed, httpRoute, startNamedCall } from "./http-routes.js";
import { serveModern, speaksModern } from "./modern.js";
import { type RemoteSessions } from "./remote-sessions.js";
import { Session, SessionConversation } from "./session.js";
import type { SessionKeeper } from "./sessions.js";
import { Subscriptions } from "./subscriptions.js";

/** The caller of a message, where the router has identified it, or the fault of a peer that cannot be one. */
export type KnownPeer = Principal | Fault;
export type Arrived = Inbound & {
  readonly known?: KnownPeer | undefined;
  /** How long it waited in the queue. */
  readonly queuedMs?: number;
};
export type EndpointRequest = HttpRequest & { readonly known?: KnownPeer | undefined };

/** Requests that are not calls. */
const UNDECIDED: ReadonlySet<string> = new Set(["initialize", "ping"]);

const MAX_HEAD_CHARS = 4_096;

const MALFORMED: Readonly<Record<Malformed["kind"], ErrorType>> = {
  "too-large": "TooLarge",
  "too-many": "TooMany",
  "not-utf8": "ParseError",
  "binary-frame": "ParseError",
};

export class Endpoint implements TransportHandler {
  readonly gateway: Gateway;
  /** Sessions of the revisions with a handshake. */
  readonly handshakes: Handshakes;
  readonly subscriptions: Subscriptions;
  readonly serializer: ResultSerializer;
  readonly expiries = new Expiries();
  /** Where the HTTP transport mounts MCP. */
  readonly mcpPath: string;
  readonly #channels = new Map<Channel, Session>();
  /** What follows an `initialize` on the same connection waits until that is answered. */
  readonly #handshakes = new WeakMap<Channel, Promise<void>>();
  readonly #stopWatching: () => void;
  /** Created on first use: an endpoint behind a router admits nothing itself. */
  #admissions: Admissions | undefined;

  constructor(gateway: Gateway, mcpPath = "/mcp", keeper?: SessionKeeper, remote?: RemoteSessions) {
    this.gateway = gateway;
    this.mcpPath = mcpPath;
    this.handshakes = new Handshakes(gateway, keeper, remote);
    this.subscriptions = new Subscriptions(gateway.limits.maxListenStreams);
    this.serializer = new ResultSerializer(gateway.server.info);
    this.#stopWatching = gateway.server.onChange((change) => this.subscriptions.announce(change, this.#active()));
  }

  admit(peer: Peer): Admission | Promise<Admission> {
    this.#admissions ??= this.#newAdmissions();
    return this.#admissions.admit(peer);
  }

  #newAdmissions(): Admissions {
    const { identify, retained, calls } = this.gateway;
    const flow = new FlowControl(calls);
    return new Admissions(identify, retained, calls, flow, (fault, peer, reply) => this.refused(fault, peer, reply));
  }

  /** Answers a caller whose message was not read: it is not known, or has too many calls in flight. */
  refused(fault: Fault, peer: Peer, reply: Reply): void {
    const isKnown = fault.type === "TooMany" || fault.type === "Unavailable";
    if (!isKnown) this.gateway.telemetry.metrics.unauthenticated.inc();
    this.reject({ reply, peer }, null, fault, ASSUMED, httpStatus(fault));
  }

  /** A call of the code that holds this endpoint: identified, decided, run and recorded like a call of any client. */
  async invoke(
    name: string,
    args: JsonObject,
    options: InvokeOptions & { principal?: Principal } = {},
  ): Promise<ToolResult> {
    const { gateway } = this;
    const peer: Peer = { transport: "memory", address: "memory" };
    const principal = options.principal ?? (await gateway.identify(peer));
    const cancel = new Cancel();
    const stop = (): void => cancel.abort(new Fault("Cancelled", `the call of \`${clip(name)}\` was cancelled`));
    const { signal } = options;
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    const span = startNamedCall(gateway, principal, name, peer.transport);
    const { transport } = peer;
    try {
      const named = { principal, name, args, transport, cancel, span, render: JSON.stringify };
      return toolResultOf(await callNamed(gateway, named));
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  connected(channel: Channel): void {
    const session = new Session((_session, text) => channel.send(text));
    this.#channels.set(channel, session);
    channel.onClose(() => {
      this.#channels.delete(channel);
      session.close("the client disconnected");
    });
  }

  message(inbound: Arrived): void {
    const { text } = inbound;
    const { maxDepth, maxValues } = this.gateway.limits;
    let value: JsonValue;
    try {
      value = parseStrict(text, maxDepth, maxValues);
    } catch (error) {
      const reason = error instanceof StrictJsonError ? error.message : "not valid JSON";
      // A text that costs too much to read is not read to its end for its id either.
      const legible = error instanceof TooManyValuesError ? text.slice(0, MAX_HEAD_CHARS) : text;
      const id = error instanceof NotJsonError ? undefined : requestIdIn(legible);
      return this.reject(inbound, id ?? null, new Fault("ParseError", reason), ASSUMED, 400);
    }
    if (Array.isArray(value)) void this.#batch(value, inbound);
    else this.#handle(classify(value), inbound);
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    const fault = new Fault(MALFORMED[problem.kind], problem.message);
    // Bytes beyond ASCII may mean anything: an id with such is not sent back.
    const id = requestIdIn(problem.head ?? "");
    const isPlain = typeof id !== "string" || /^[\x20-\x7e]*$/.test(id);
    this.reject({ reply, peer }, isPlain ? (id ?? null) : null, fault, ASSUMED, httpStatus(fault));
  }

  http(request: EndpointRequest): boolean {
    return httpRoute(this, request);
  }

  /** Sessions and connections that a client may come back to. */
  get openSessions(): number {
    return this.handshakes.sessions.size + this.#channels.size + this.subscriptions.size;
  }

  /** A key was revoked or changed: its streams and connections end. Calls that were permitted continue. */
  revoked(credential: string): void {
    this.subscriptions.endFor(credential);
    for (const session of this.handshakes.sessions.all()) session.streams.detach(credential);
    for (const [channel, session] of [...this.#channels]) {
      const isHeld = session.principal?.credential === credential || this.expiries.isHeldBy(channel, credential);
      if (isHeld) channel.close("the credential was revoked or changed");
    }
  }

  /** Ends streams that have no end of their own, so that clients open them at another replica. Calls continue. */
  endStreams(): void {
    this.subscriptions.endAll();
    for (const session of this.handshakes.sessions.all()) session.listening?.end();
  }

  close(): void {
    this.#stopWatching();
    void this.gateway.refusals.flush();
    this.expiries.close();
    this.subscriptions.endAll();
    this.handshakes.sessions.closeAll();
    for (const session of this.#channels.values()) session.close("the server is stopping");
  }

  /** Ends connections, because the application is closed or was removed. */
  disconnect(): void {
    for (const channel of [...this.#channels.keys()]) channel.close("the application is closed");
  }

  /** The caller, or a Fault of type AuthenticationError. */
  identify(from: Pick<Arrived, "peer" | "known">, auth?: JsonValue, meta?: JsonValue): Principal | Promise<Principal> {
    const { peer, known } = from;
    if (known instanceof Fault) throw known;
    return known ?? this.gateway.identify(peer, auth, meta);
  }

  sessionOn(channel: Channel | undefined): Session | undefined {
    return channel && this.#channels.get(channel);
  }

  *#active(): Iterable<Session> {
    yield* this.handshakes.sessions.active();
    for (const session of this.#channels.values()) if (session.phase === "active") yield session;
  }

  // ---- one message ------------------------------------------------------------------------------------------

  #handle(message: Classified, inbound: Arrived): void {
    switch (message.kind) {
      case "invalid":
        return this.reject(inbound, message.id, message.fault, ASSUMED, 400);
      case "request":
        this.#request(message.message, inbound).catch((error) => {
          const fault = asFault(error);
          this.reject(inbound, message.message.id, fault, ASSUMED, isGatewayOutage(fault) ? httpStatus(fault) : 200);
        });
        return;
      case "notification":
      case "response":
        this.#takeMessage(message.message, inbound).then(
          () => inbound.reply.end(undefined, { status: 202 }),
          (error) => {
            const fault = asFault(error);
            this.reject(inbound, null, fault, ASSUMED, httpStatus(fault));
          },
        );
    }
  }

  async #batch(items: JsonValue[], inbound: Arrived): Promise<void> {
    const { maxBatch } = this.gateway.limits;
    const session = inbound.channel
      ? this.sessionOn(inbound.channel)
      : await this.#sessionOf(inbound).catch(() => undefined);
    const allowed = session?.phase === "active" ? session.revision.batches : this.gateway.plainMethods.size > 0;
    if (!allowed || items.length === 0 || items.length > maxBatch) {
      const reason = allowed ? `a batch holds 1 to ${maxBatch} messages` : "batches exist only in revision 2025-03-26";
      return this.reject(inbound, null, new Fault("InvalidRequest", reason), ASSUMED, 400);
    }
    const answers = await Promise.all(items.map((item) => this.#inBatch(item, inbound)));
    const texts = answers.filter((text) => text !== undefined);
    if (texts.length === 0) inbound.reply.end(undefined, { status: 202 });
    else inbound.reply.end(`[${texts.join(",")}]`);
  }

  /** A member of a batch answers into the batch instead of onto the wire. */
  #inBatch(item: JsonValue, inbound: Arrived): Promise<string | undefined> {
    return new Promise((resolve) => {
      const { reply } = inbound;
      const collected: Reply = {
        send: (text, eventId) => reply.send(text, eventId),
        drained: () => reply.drained(),
        open: () => {},
        end: (text) => resolve(text?.toString()),
        get ended() {
          return reply.ended;
        },
        onAbort: (listener) => reply.onAbort(listener),
      };
      this.#handle(classify(item), { ...inbound, reply: collected });
    });
  }

  /** The session that an HTTP request names. */
  async #sessionOf(inbound: Arrived): Promise<Session> {
    return this.handshakes.find(inbound.peer.headers, await this.identify(inbound));
  }

  // ---- notifications and answers ----------------------------------------------------------------------------

  async #takeMessage(message: Notification | Response, inbound: Arrived): Promise<void> {
    const modern = "method" in message && speaksModern(message.params, inbound.peer.headers);
    const handshake = inbound.channel && this.#handshakes.get(inbound.channel);
    if (handshake) await handshake;
    // INVARIANT: no await on a connection, so that a message takes effect before the next one is handled.
    const session = inbound.channel
      ? this.sessionOn(inbound.channel)
      : modern
        ? undefined
        : await this.#sessionOf(inbound);
    if (!session) return;
    if (await this.handshakes.take(message, session, inbound.channel !== undefined)) return;
    const { method } = message as Notification;
    const limited = session.principal && (await this.gateway.gate.count(session.principal, method));
    if (limited) throw limitFault(limited);
  }

  // ---- requests ---------------------------------------------------------------------------------------------

  #request(request: Request, inbound: Arrived): Promise<void> {
    const { calls, limits } = this.gateway;
    if ((inbound.queuedMs ?? 0) > limits.queueDeadlineMs) {
      const fault = calls.overdue();
      this.reject(inbound, request.id, fault, ASSUMED, httpStatus(fault));
      return Promise.resolve();
    }
    const unauthenticated = (error: unknown): void => {
      this.gateway.telemetry.metrics.unauthenticated.inc();
      const fault = asFault(error);
      this.reject(inbound, request.id, fault, ASSUMED, httpStatus(fault));
    };
    try {
      const { auth } = request as unknown as JsonObject;
      const principal = this.identify(inbound, auth, request.params?._meta);
      if (!(principal instanceof Promise)) return this.#dispatch(request, inbound, principal);
      return principal.then((known) => this.#dispatch(request, inbound, known), unauthenticated);
    } catch (error) {
      unauthenticated(error);
      return Promise.resolve();
    }
  }

  #dispatch(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { peer, channel } = inbound;
    channel?.authenticated?.(this.gateway.retained.of(principal));
    if (channel) this.expiries.hold(channel, principal, request.method === "initialize");
    if (speaksModern(request.params, peer.headers)) return serveModern(this, request, inbound, principal);
    if (this.gateway.plainMethods.has(request.method)) return this.#plain(request, inbound, principal);
    if (UNDECIDED.has(request.method)) {
      const counted = this.#counted(request, inbound, principal);
      if (!channel || request.method !== "initialize") return counted;
      const handshake = counted.finally(() => this.#handshakes.delete(channel));
      this.#handshakes.set(channel, handshake);
      return handshake;
    }
    // A client may send its first call without waiting for the answer to `initialize`.
    const handshake = channel && this.#handshakes.get(channel);
    if (handshake) return handshake.then(() => this.#inSession(request, inbound, principal));
    return this.#inSession(request, inbound, principal);
  }

  /** What is answered without a decision counts against the caller's limits, too. */
  async #counted(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const limited = await this.gateway.gate.count(principal, request.method);
    if (!limited) return this.#inSession(request, inbound, principal);
    const fault = limitFault(limited);
    this.reject(inbound, request.id, fault, ASSUMED, httpStatus(fault));
  }

  #inSession(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { channel, peer } = inbound;
    try {
      const session = channel ? this.sessionOn(channel) : this.handshakes.sessionFor(request, peer.headers, principal);
      return session ? this.#legacy(request, inbound, principal, session) : Promise.resolve();
    } catch (error) {
      const fault = asFault(error);
      this.reject(inbound, request.id, fault, ASSUMED, httpStatus(fault));
      return Promise.resolve();
    }
  }

  /** A tool that is called by its own name as a method: no handshake, errors as JSON-RPC errors. */
  async #plain(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { peer, reply, channel } = inbound;
    const session = this.sessionOn(channel);
    const cancel = new Cancel();
    reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client disconnected")));
    const wrapped: Request = {
      ...request,
      method: "tools/call",
      params: { name: request.method, arguments: request.params ?? {} },
    };
    const answer = await this.answer(session?.underWay, {
      request: wrapped,
      principal,
      revision: ASSUMED,
      peer,
      conversation: SILENT,
      cancel,
      plain: true,
    });
    reply.end(answer.text, answer.head);
  }

  async #legacy(request: Request, inbound: Arrived, principal: Principal, session: Session): Promise<void> {
    const { reply, peer } = inbound;
    const wrong = phaseFault(session.phase, request.method);
    if (wrong) return this.reject(inbound, request.id, wrong, session.revision, 400);
    if (request.method === "initialize") {
      const answer = this.handshakes.initialize(request, session, principal);
      if (!inbound.channel) await this.handshakes.save(session);
      return reply.end(answer, { headers: { "mcp-session-id": session.id } });
    }
    if (request.method === "ping") return reply.end(successText(request.id, "{}"));
    const conversation = new SessionConversation(session, inbound, this.gateway.limits.askTimeoutMs, () =>
      session.streams.create(this.expiries.limit(reply, principal), principal.credential),
    );
    const cancel = new Cancel();
    const answer = await this.answer(session.underWay, {
      request,
      principal,
      revision: session.revision,
      peer,
      conversation,
      cancel,
      session,
    });
    if (answer.ok && !inbound.channel) await this.handshakes.keepChange(session, request);
    conversation.end(answer);
  }

  // ---- answering --------------------------------------------------------------------------------------------

  /** Keeps a request where it can be cancelled, within the bound on open requests, until it is answered. */
  async answer(underWay: Map<RequestId, Cancel> | undefined, asked: IncomingRequest): Promise<RequestOutcome> {
    const { id } = asked.request;
    if (underWay?.has(id)) {
      return this.#failed(
        asked,
        new Fault("InvalidRequest", `a request with id ${JSON.stringify(id)} is already in flight`),
      );
    }
    if (underWay && underWay.size >= this.gateway.limits.maxOpenRequests) {
      return this.#failed(asked, new Fault("TooMany", `${this.gateway.limits.maxOpenRequests} requests are in flight`));
    }
    underWay?.set(id, asked.cancel);
    try {
      const answered = await answerRequest(this.gateway, this.serializer, asked);
      return asked.cancel.withdrawn ? UNANSWERED : answered;
    } finally {
      underWay?.delete(id);
    }
  }

  #failed({ request, peer }: IncomingRequest, fault: Fault): RequestOutcome {
    return failed(request.id, fault, rejectedTrace(this.gateway, peer, fault));
  }

  reject(
    { reply, peer }: Pick<Arrived, "reply" | "peer">,
    id: RequestId | null,
    fault: Fault,
    revision: Revision,
    status: number,
  ): void {
    const traceId = rejectedTrace(this.gateway, peer, fault);
    const headers = { ...authenticateHeader(fault), ...retryHeader(fault) };
    reply.end(errorText(id, fault, revision, traceId), { status, headers });
  }
}

function limitFault({ reason, suggestions, extra }: CheckResult): Fault {
  return new Fault("RateLimited", reason, { suggestions, extra });
}
