// Bytes become proposals here, and answers become bytes. The endpoint knows revisions, phases and sessions;
// what a call may do is none of its business: that is `call`.

import type { Principal, CheckResult } from "../policy/index.js";
import {
  ASSUMED,
  asFault,
  type Classified,
  classify,
  type ErrorType,
  Fault,
  httpStatus,
  isGatewayOutage,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  MODERN,
  type Notification,
  negotiate,
  NotJsonError,
  parseStrict,
  phaseFault,
  type Request,
  type RequestId,
  requestIdIn,
  type Response,
  type Revision,
  revisionNamed,
  steadyNow,
  StrictJsonError,
  TooManyValuesError,
} from "../mcp/index.js";
import type { InvokeOptions, LogLevel, ToolResult } from "../mcp/server/index.js";
import type {
  Admission,
  Channel,
  TransportHandler,
  HttpRequest,
  Inbound,
  Malformed,
  Peer,
  Reply,
} from "../mcp/transports/index.js";
import {
  introduce,
  SILENT,
  Cancel,
  clip,
  findTool,
  type Conversation,
  type Gateway,
  RawResult,
} from "../pipeline/index.js";
import { Admissions } from "./admission.js";
import { type RequestOutcome, type IncomingRequest, answerRequest, failed, UNANSWERED } from "./answer.js";
import { keptCapabilities } from "./client-capabilities.js";
import { httpRoute } from "./http-routes.js";
import { authenticateHeader, ResultSerializer, errorText, retryHeader, successText } from "./result-serializer.js";
import { Expiries } from "./expiry.js";
import { FlowControl } from "./flow-control.js";
import { mayFollow } from "./follow.js";
import { callNamed, startNamedCall } from "./invoke.js";
import { refusedTrace } from "./rejected.js";
import { checkModern, checkParamHeaders, type ModernFacts, speaksModern } from "./modern.js";
import { callerOf, Session, type SessionChange, type SessionKeeper, Sessions } from "./session.js";
import { SessionConversation, takesStreams } from "./session-conversation.js";
import { replicaIn, type RemoteSessions } from "./remote-sessions.js";
import { filterOf, Subscriptions } from "./subscriptions.js";

/** Who a text is from, where somebody in front has found out already: a caller, or why nobody can be one. */
export type KnownPeer = Principal | Fault;
export type Arrived = Inbound & {
  readonly known?: KnownPeer | undefined;
  /** How long it waited for its turn. */
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
  readonly sessions: Sessions;
  readonly subscriptions: Subscriptions;
  readonly serializer: ResultSerializer;
  readonly expiries = new Expiries();
  /** Where the HTTP transport mounts MCP. */
  readonly mcpPath: string;
  readonly #channels = new Map<Channel, Session>();
  /** What follows an `initialize` on the same connection waits until that is answered. */
  readonly #handshakes = new WeakMap<Channel, Promise<void>>();
  readonly #stopWatching: () => void;
  readonly #keeper: SessionKeeper | undefined;
  readonly #remote: RemoteSessions | undefined;
  /** Made on first use: an endpoint behind a router admits nothing itself. */
  #admissions: Admissions | undefined;

  constructor(gateway: Gateway, mcpPath = "/mcp", keeper?: SessionKeeper, remote?: RemoteSessions) {
    this.gateway = gateway;
    this.mcpPath = mcpPath;
    this.#keeper = keeper;
    this.#remote = remote;
    const { retained } = gateway;
    this.sessions = new Sessions(
      gateway.limits,
      retained,
      remote?.here,
      (id) => this.#keeper?.remove(id),
      (ids) => this.#keeper?.touch(ids),
    );
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
    this.#refuse({ reply, peer }, null, fault, ASSUMED, httpStatus(fault));
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
    const { transport } = peer;
    const span = startNamedCall(gateway, { principal, name, transport });
    try {
      const answer = await callNamed(gateway, {
        principal,
        name,
        args,
        transport,
        cancel,
        span,
        render: JSON.stringify,
      });
      if (!answer.ok) throw answer.fault;
      const { result } = answer;
      return (result instanceof RawResult ? result.value : result) as unknown as ToolResult;
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
      return this.#refuse(inbound, id ?? null, new Fault("ParseError", reason), ASSUMED, 400);
    }
    if (Array.isArray(value)) void this.#batch(value, inbound);
    else this.#one(classify(value), inbound);
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    const fault = new Fault(MALFORMED[problem.kind], problem.message);
    // Bytes beyond ASCII may mean anything: an id with such is not sent back.
    const id = requestIdIn(problem.head ?? "");
    const isPlain = typeof id !== "string" || /^[\x20-\x7e]*$/.test(id);
    this.#refuse({ reply, peer }, isPlain ? (id ?? null) : null, fault, ASSUMED, httpStatus(fault));
  }

  http(request: EndpointRequest): boolean {
    return httpRoute(this, request);
  }

  /** Sessions and connections that somebody may come back to. */
  get openSessions(): number {
    return this.sessions.size + this.#channels.size + this.subscriptions.size;
  }

  /** True when a session named by a request has to be asked for at the store first. */
  mustAdopt(id: string): boolean {
    return this.#keeper !== undefined && this.sessions.get(id)?.phase !== "active";
  }

  /** A session that began at another replica, when it is this caller's. */
  async adopt(id: string, principal: Principal): Promise<void> {
    const saved = await this.#keeper?.load(id);
    const revision = saved && revisionNamed(saved.revision);
    const { app, agent, holder } = principal;
    if (!saved || !revision || saved.app !== app || saved.caller !== callerOf(principal)) return;
    const follow = (uri: string): (() => void) => this.gateway.server.follow?.(uri) ?? (() => {});
    this.sessions.adopt(
      saved,
      revision,
      { app, agent, ...(holder === undefined ? {} : { holder }), scope: [], via: "session" },
      follow,
    );
  }

  /** Changes may have been missed: sessions are read again, and those that a restored store lacks are saved again. */
  async resync(): Promise<void> {
    if (!this.#keeper) return;
    for (const session of [...this.sessions.active()]) {
      if (await this.#keeper.load(session.id)) await this.refresh(session.id);
      else await this.#save(session);
    }
  }

  /** It was changed at another replica. */
  async refresh(id: string): Promise<void> {
    const { principal } = this.sessions.get(id) ?? {};
    if (principal) await this.adopt(id, principal);
  }

  /** Goes on with an event stream where the client lost it, here or at the replica that keeps it. */
  resume(
    session: Session,
    lastEventId: string,
    reply: Reply,
    { credential }: Pick<Principal, "credential">,
  ): void | Promise<void> {
    const at = replicaIn(lastEventId);
    if (this.#remote && at !== undefined && at !== this.#remote.here) {
      return this.#remote.resume(at, session, lastEventId, reply, credential);
    }
    const { stream, seq } = session.streams.find(lastEventId);
    stream.resume(reply, seq, credential);
  }

  /** A key counts no more, or not for what it did: whatever its holder still listens to ends. What was permitted and runs goes on. */
  revoked(credential: string): void {
    this.subscriptions.endFor(credential);
    for (const session of this.sessions.all()) session.streams.detach(credential);
    for (const [channel, session] of [...this.#channels]) {
      const isItsOwn = session.principal?.credential === credential || this.expiries.isHeldBy(channel, credential);
      if (isItsOwn) channel.close("the credential was revoked or changed");
    }
  }

  /** It was ended at another replica. */
  forget(id: string): void {
    const session = this.sessions.get(id);
    if (session) this.sessions.end(session, "the client ended the session");
  }

  endSession(session: Session): void {
    this.#keeper?.remove(session.id);
    this.sessions.end(session, "the client ended the session");
  }

  async #save(session: Session): Promise<void> {
    const { id, principal, revision, phase, clientCapabilities, logLevel } = session;
    if (!this.#keeper || !principal) return;
    const { app } = principal;
    const caller = callerOf(principal);
    await this.#keeper.save({ id, app, caller, revision: revision.name, phase, clientCapabilities, logLevel });
  }

  /** Ends streams that have no end of their own, so that clients open them at another replica. Calls continue. */
  endStreams(): void {
    this.subscriptions.endAll();
    for (const session of this.sessions.all()) session.listening?.end();
  }

  close(): void {
    this.#stopWatching();
    void this.gateway.refusals.flush();
    this.expiries.close();
    this.subscriptions.endAll();
    this.sessions.closeAll();
    for (const session of this.#channels.values()) session.close("the server is stopping");
  }

  /** Ends connections whose application is closed or was removed: nothing answers their messages any more. */
  disconnect(): void {
    for (const channel of [...this.#channels.keys()]) channel.close("the application is closed");
  }

  /** Whoever the peer is, or a Fault of type AuthenticationError. */
  identify(from: Pick<Arrived, "peer" | "known">, auth?: JsonValue, meta?: JsonValue): Principal | Promise<Principal> {
    const { peer, known } = from;
    if (known instanceof Fault) throw known;
    return known ?? this.gateway.identify(peer, auth, meta);
  }

  *#active(): Iterable<Session> {
    yield* this.sessions.active();
    for (const session of this.#channels.values()) if (session.phase === "active") yield session;
  }

  // ---- one message ------------------------------------------------------------------------------------------

  #one(message: Classified, inbound: Arrived): void {
    switch (message.kind) {
      case "invalid":
        return this.#refuse(inbound, message.id, message.fault, ASSUMED, 400);
      case "request":
        this.#request(message.message, inbound).catch((error) => {
          const fault = asFault(error);
          this.#refuse(inbound, message.message.id, fault, ASSUMED, isGatewayOutage(fault) ? httpStatus(fault) : 200);
        });
        return;
      case "notification":
      case "response":
        this.#aside(message.message, inbound).then(
          () => inbound.reply.end(undefined, { status: 202 }),
          (error) => {
            const fault = asFault(error);
            this.#refuse(inbound, null, fault, ASSUMED, httpStatus(fault));
          },
        );
    }
  }

  async #batch(items: JsonValue[], inbound: Arrived): Promise<void> {
    const { maxBatch } = this.gateway.limits;
    const session = inbound.channel
      ? this.#channels.get(inbound.channel)
      : await this.#knownSession(inbound).catch(() => undefined);
    const allowed = session?.phase === "active" ? session.revision.batches : this.gateway.plainMethods.size > 0;
    if (!allowed || items.length === 0 || items.length > maxBatch) {
      const reason = allowed ? `a batch holds 1 to ${maxBatch} messages` : "batches exist only in revision 2025-03-26";
      return this.#refuse(inbound, null, new Fault("InvalidRequest", reason), ASSUMED, 400);
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
      this.#one(classify(item), { ...inbound, reply: collected });
    });
  }

  // ---- notifications and answers ----------------------------------------------------------------------------

  async #aside(message: Notification | Response, inbound: Arrived): Promise<void> {
    const modern = "method" in message && speaksModern(message.params, inbound.peer.headers);
    const handshake = inbound.channel && this.#handshakes.get(inbound.channel);
    if (handshake) await handshake;
    const session = inbound.channel
      ? this.#channels.get(inbound.channel)
      : modern
        ? undefined
        : await this.#knownSession(inbound);
    if (!session) return;
    const remote = inbound.channel ? undefined : this.#remote;
    if (!("method" in message)) {
      const at = replicaIn(message.id);
      if (session.answer(message) || !remote || at === undefined || at === remote.here) return;
      return remote.answer(at, session, message);
    }
    switch (message.method) {
      case "notifications/initialized":
        if (session.phase !== "initializing") return;
        session.phase = "active";
        if (!inbound.channel) await this.#save(session);
        return;
      case "notifications/cancelled": {
        const id = message.params?.requestId;
        if (typeof id !== "string" && typeof id !== "number") return;
        const said = typeof message.params?.reason === "string" ? `: ${message.params.reason}` : "";
        const reason = `the client cancelled this call${said}`;
        const cancel = session.underWay.get(id);
        if (cancel) cancel.withdraw(new Fault("Cancelled", reason));
        else await remote?.cancel(session, id, reason);
        return;
      }
      default: {
        const limited = session.principal && (await this.gateway.gate.count(session.principal, message.method));
        if (limited) throw limitFault(limited);
      }
    }
  }

  // ---- requests ---------------------------------------------------------------------------------------------

  #request(request: Request, inbound: Arrived): Promise<void> {
    const { calls, limits } = this.gateway;
    if ((inbound.queuedMs ?? 0) > limits.queueDeadlineMs) {
      const fault = calls.overdue();
      this.#refuse(inbound, request.id, fault, ASSUMED, httpStatus(fault));
      return Promise.resolve();
    }
    const refused = (error: unknown): void => {
      this.gateway.telemetry.metrics.unauthenticated.inc();
      const fault = asFault(error);
      this.#refuse(inbound, request.id, fault, ASSUMED, httpStatus(fault));
    };
    try {
      const { auth } = request as unknown as JsonObject;
      const principal = this.identify(inbound, auth, request.params?._meta);
      if (!(principal instanceof Promise)) return this.#dispatch(request, inbound, principal);
      return principal.then((known) => this.#dispatch(request, inbound, known), refused);
    } catch (error) {
      refused(error);
      return Promise.resolve();
    }
  }

  #dispatch(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { peer, channel } = inbound;
    channel?.authenticated?.(this.gateway.retained.of(principal));
    if (channel) this.expiries.hold(channel, principal, request.method === "initialize");
    if (speaksModern(request.params, peer.headers)) return this.#modern(request, inbound, principal);
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

  /** What is answered without a decision counts against the caller's limits all the same. */
  async #counted(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const limited = await this.gateway.gate.count(principal, request.method);
    if (!limited) return this.#inSession(request, inbound, principal);
    const fault = limitFault(limited);
    this.#refuse(inbound, request.id, fault, ASSUMED, httpStatus(fault));
  }

  #inSession(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { channel } = inbound;
    const session = channel ? this.#channels.get(channel) : this.#legacyHttp(request, inbound, principal);
    return session ? this.#legacy(request, inbound, principal, session) : Promise.resolve();
  }

  async #modern(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { reply, peer, channel } = inbound;
    const headers = peer.transport === "http" ? peer.headers : undefined;
    let facts: ModernFacts;
    try {
      facts = checkModern(request, headers);
      if (headers && request.method === "tools/call") this.#checkParams(request, principal, headers);
      if (!MODERN.methods.has(request.method)) {
        throw new Fault("MethodNotFound", `there is no method \`${clip(request.method)}\` in revision ${MODERN.name}`);
      }
    } catch (error) {
      const fault = asFault(error);
      return this.#refuse(inbound, request.id, fault, MODERN, httpStatus(fault));
    }
    const conversation: Conversation = {
      clientCapabilities: facts.clientCapabilities,
      logLevel: facts.logLevel,
      notify: (method, params) =>
        takesStreams(inbound) && !hasExpired(principal) ? reply.send(note(method, params)) : true,
      drained: () => reply.drained(),
    };
    const cancel = new Cancel();
    // No session outlives the exchange: a stream that closes cancels its call.
    reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client closed the stream")));
    if (request.method === "subscriptions/listen")
      return this.#listen(request, inbound, principal, conversation, cancel);
    const underWay = channel ? this.#channels.get(channel)?.underWay : undefined;
    const answer = await this.#answer(underWay, { request, principal, revision: MODERN, peer, conversation, cancel });
    reply.end(answer.text, answer.head);
  }

  /** Only for a tool that this caller reaches: for any other, `call` answers as it does for one that is missing. */
  #checkParams(request: Request, principal: Principal, headers: NonNullable<Peer["headers"]>): void {
    const { name, arguments: args } = request.params as JsonObject;
    const tool = typeof name === "string" ? findTool(this.gateway, principal, name) : undefined;
    if (tool && isJsonObject(args)) checkParamHeaders(tool.definition.inputSchema, args, headers);
  }

  async #listen(
    request: Request,
    inbound: Arrived,
    principal: Principal,
    conversation: Conversation,
    cancel: Cancel,
  ): Promise<void> {
    const { reply, peer } = inbound;
    const gate = await this.#answer(undefined, { request, principal, revision: MODERN, peer, conversation, cancel });
    if (!gate.ok) return reply.end(gate.text, gate.head);
    const finish = (): void => {
      stop();
      if (!reply.ended) reply.end(gate.text);
    };
    let stop = (): void => {};
    try {
      const filter = filterOf(request.params ?? {});
      if (filter.resourceSubscriptions) {
        const who = { principal, requestId: request.id, transport: peer.transport, conversation, cancel };
        filter.resourceSubscriptions = await mayFollow(this.gateway, who, filter.resourceSubscriptions);
      }
      if (cancel.fault) return;
      const follow = (uri: string): (() => void) => this.gateway.server.follow?.(uri) ?? (() => {});
      const { credential, agent } = principal;
      const unsubscribe = this.subscriptions.listen(request.id, filter, reply, finish, follow, credential, agent);
      const forget = this.expiries.add(principal.expiresAt, finish);
      stop = () => {
        forget();
        unsubscribe();
      };
    } catch (error) {
      return this.#refuse(inbound, request.id, asFault(error), MODERN, httpStatus(asFault(error)));
    }
    const session = inbound.channel ? this.#channels.get(inbound.channel) : undefined;
    session?.underWay.set(request.id, cancel);
    cancel.onAbort(() => {
      session?.underWay.delete(request.id);
      stop();
      if (cancel.withdrawn && !reply.ended) reply.end();
    });
  }

  /** A tool called by its own name as a method: no handshake, errors as JSON-RPC errors. */
  async #plain(request: Request, inbound: Arrived, principal: Principal): Promise<void> {
    const { peer, reply, channel } = inbound;
    const session = channel ? this.#channels.get(channel) : undefined;
    const cancel = new Cancel();
    reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client went away")));
    const wrapped: Request = {
      ...request,
      method: "tools/call",
      params: { name: request.method, arguments: request.params ?? {} },
    };
    const answer = await this.#answer(session?.underWay, {
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

  /** The session a request belongs to; undefined when it was refused for want of one. */
  #legacyHttp(request: Request, inbound: Arrived, principal: Principal): Session | undefined {
    const { headers } = inbound.peer;
    try {
      const asked = headers?.["mcp-protocol-version"];
      if (typeof asked === "string" && !revisionNamed(asked)) {
        throw new Fault("InvalidRequest", `revision \`${asked}\` is not supported`, { field: "MCP-Protocol-Version" });
      }
      const isNew = request.method === "initialize" && headers?.["mcp-session-id"] === undefined;
      return isNew ? this.sessions.open(principal) : this.#httpSession(inbound, principal);
    } catch (error) {
      const fault = asFault(error);
      this.#refuse(inbound, request.id, fault, ASSUMED, httpStatus(fault));
      return undefined;
    }
  }

  async #knownSession(inbound: Arrived): Promise<Session> {
    return this.#httpSession(inbound, await this.identify(inbound));
  }

  #httpSession(inbound: Arrived, principal: Principal): Session {
    const id = inbound.peer.headers?.["mcp-session-id"];
    if (typeof id !== "string") {
      throw new Fault("InvalidRequest", "header `Mcp-Session-Id` is missing; begin with `initialize`", {
        field: "Mcp-Session-Id",
      });
    }
    return this.sessions.find(id, principal);
  }

  async #legacy(request: Request, inbound: Arrived, principal: Principal, session: Session): Promise<void> {
    const { reply, peer } = inbound;
    const wrong = phaseFault(session.phase, request.method);
    if (wrong) return this.#refuse(inbound, request.id, wrong, session.revision, 400);
    if (request.method === "initialize") {
      const answer = this.#initialize(request, session, principal);
      if (!inbound.channel) await this.#save(session);
      return reply.end(answer, { headers: { "mcp-session-id": session.id } });
    }
    if (request.method === "ping") return reply.end(successText(request.id, "{}"));
    const conversation = new SessionConversation(session, inbound, this.gateway.limits.askTimeoutMs, () =>
      session.streams.create(this.expiries.limit(reply, principal), principal.credential),
    );
    const cancel = new Cancel();
    const answer = await this.#answer(session.underWay, {
      request,
      principal,
      revision: session.revision,
      peer,
      conversation,
      cancel,
      session,
    });
    if (answer.ok && !inbound.channel) await this.#keepChange(session, request);
    conversation.end(answer);
  }

  /** What the client has changed of its session counts at every replica. */
  async #keepChange({ id }: Session, { method, params }: Request): Promise<void> {
    const change = this.#keeper && changeBy(method, params ?? {});
    if (!change) return;
    await this.#keeper?.change(id, change).catch((error: Error) => {
      this.gateway.telemetry.log.warning("a change of a session is known here only", { problem: error.message });
    });
  }

  #initialize(request: Request, session: Session, principal: Principal): string {
    const params = request.params ?? {};
    session.revision = negotiate(params.protocolVersion);
    session.clientCapabilities = keptCapabilities(params.capabilities);
    session.principal = principal;
    session.phase = "initializing";
    const { server } = this.gateway;
    const result = {
      protocolVersion: session.revision.name,
      serverInfo: server.info,
      ...introduce(server, session.revision, principal),
    };
    return successText(request.id, JSON.stringify(result));
  }

  // ---- answering --------------------------------------------------------------------------------------------

  /** Keeps a request where it can be cancelled, within the bound on open requests, until it is answered. */
  async #answer(underWay: Map<RequestId, Cancel> | undefined, asked: IncomingRequest): Promise<RequestOutcome> {
    const { id } = asked.request;
    if (underWay?.has(id)) {
      return this.#failed(
        asked,
        new Fault("InvalidRequest", `a request with id ${JSON.stringify(id)} is already under way`),
      );
    }
    if (underWay && underWay.size >= this.gateway.limits.maxOpenRequests) {
      return this.#failed(asked, new Fault("TooMany", `${this.gateway.limits.maxOpenRequests} requests are under way`));
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
    return failed(request.id, fault, refusedTrace(this.gateway, peer, fault));
  }

  #refuse(
    { reply, peer }: Pick<Arrived, "reply" | "peer">,
    id: RequestId | null,
    fault: Fault,
    revision: Revision,
    status: number,
  ): void {
    const traceId = refusedTrace(this.gateway, peer, fault);
    const headers = { ...authenticateHeader(fault), ...retryHeader(fault) };
    reply.end(errorText(id, fault, revision, traceId), { status, headers });
  }
}

function limitFault({ reason, suggestions, extra }: CheckResult): Fault {
  return new Fault("RateLimited", reason, { suggestions, extra });
}

function changeBy(method: string, { uri, level }: JsonObject): SessionChange | undefined {
  if (method === "logging/setLevel") return { logLevel: level as LogLevel };
  if (method === "resources/subscribe") return { subscribe: uri as string };
  if (method === "resources/unsubscribe") return { unsubscribe: uri as string };
  return undefined;
}

function hasExpired({ expiresAt }: Principal): boolean {
  return expiresAt !== undefined && expiresAt <= steadyNow();
}

function note(method: string, params: JsonObject): string {
  return JSON.stringify({ jsonrpc: "2.0", method, params });
}
