// A handshake connection: its phase, what the client can do, what is under way, and questions that wait for it.
// On stdio, TCP, WebSocket and memory it is the connection; on HTTP it is named by `Mcp-Session-Id`.

import { randomBytes } from "node:crypto";
import type { Principal } from "../policy/index.js";
import {
  ByteBudget,
  Charge,
  Fault,
  type JsonObject,
  LEGACY,
  type Phase,
  type RequestId,
  type Response,
  type RetainedBytes,
  type Revision,
} from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { Cancel, GatewayLimits } from "../pipeline/index.js";
import { type EventStream, type Replay, Streams } from "./streams.js";

const MAX_QUESTIONS = 64;
const MAX_SUBSCRIPTIONS = 1_000;
export const MAX_URI_CHARS = 8_192;
/** What a session costs besides what it keeps: its tables and what the client can do. */
const SESSION_BYTES = 8 * 1024;
const SUBSCRIPTION_BYTES = 256;
/** Of what an agent may keep, so much is for events that it can ask for again. */
const REPLAY_SHARE = 1 / 4;

export class Session {
  readonly id: string;
  phase: Phase = "new";
  revision: Revision = LEGACY[0] as Revision;
  clientCapabilities: JsonObject = {};
  principal: Principal | undefined;
  /** Until the client says otherwise, everything from `info` up. */
  logLevel: LogLevel = "info";
  readonly underWay = new Map<RequestId, Cancel>();
  /** Resources it follows, each with what ends that. */
  readonly subscriptions = new Map<string, () => void>();
  readonly streams: Streams;
  /** HTTP: the stream that a GET opened. */
  listening: EventStream | undefined;
  lastUsed = performance.now();
  readonly #send: (text: string) => boolean;
  readonly #questions = new Map<RequestId, { resolve: (result: JsonObject) => void; reject: (fault: Fault) => void }>();
  #nextQuestion = 0;
  readonly #at: string | undefined;
  readonly #charge: Charge;

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

  /** Asks the client within the call `via` belongs to; its answer comes as a message of its own. */
  ask(
    method: string,
    params: JsonObject,
    via: (text: string) => boolean,
    timeoutMs: number,
    cancel: Cancel,
  ): Promise<JsonObject> {
    if (this.#questions.size >= MAX_QUESTIONS) {
      return Promise.reject(new Fault("TooMany", `${MAX_QUESTIONS} questions to this client are already open`));
    }
    const id = `q${this.#nextQuestion++}${this.#at === undefined ? "" : `~${this.#at}`}`;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          settle(() =>
            reject(
              new Fault("ToolTimeout", `the client did not answer \`${method}\` within ${timeoutMs} ms`, {
                extra: { timeout_ms: timeoutMs, timedOut: true },
                suggestions: ["Repeat the call when somebody can answer"],
              }),
            ),
          ),
        timeoutMs,
      );
      const stop = (): void => settle(() => reject(cancel.fault ?? new Fault("Cancelled", "the call was cancelled")));
      const settle = (then: () => void): void => {
        clearTimeout(timer);
        this.#questions.delete(id);
        cancel.signal.removeEventListener("abort", stop);
        then();
      };
      cancel.signal.addEventListener("abort", stop, { once: true });
      this.#questions.set(id, {
        resolve: (result) => settle(() => resolve(result)),
        reject: (fault) => settle(() => reject(fault)),
      });
      via(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** An answer belongs to exactly one open question of this session, or it is dropped. */
  answer(response: Response): boolean {
    const question = response.id === null ? undefined : this.#questions.get(response.id);
    if (!question) return false;
    if ("result" in response) question.resolve(response.result);
    else question.reject(new Fault("ToolExecution", `the client refused: ${response.error.message}`));
    return true;
  }

  close(reason: string): void {
    if (this.phase === "closed") return;
    this.phase = "closed";
    const fault = new Fault("Cancelled", reason);
    for (const cancel of this.underWay.values()) cancel.abort(fault);
    for (const question of [...this.#questions.values()]) question.reject(fault);
    this.streams.endAll();
    for (const uri of [...this.subscriptions.keys()]) this.unsubscribe(uri);
    this.#charge.set(0);
  }
}

function subscriptionCost(uri: string): number {
  return SUBSCRIPTION_BYTES + 2 * uri.length;
}

/** A session as another replica can take it over: everything but its streams and what is under way. */
export interface SavedSession {
  readonly id: string;
  readonly app: string;
  /** As `callerOf` gives it. */
  readonly caller: string;
  readonly revision: string;
  readonly phase: Phase;
  readonly clientCapabilities: JsonObject;
  readonly logLevel: LogLevel;
  readonly subscriptions: readonly string[];
}

/** What a client changes of its session, and every replica has to know. */
export interface SessionChange {
  readonly logLevel?: LogLevel;
  readonly subscribe?: string;
  readonly unsubscribe?: string;
}

/** Keeps sessions where every replica finds them. */
export interface SessionKeeper {
  save(session: Omit<SavedSession, "subscriptions">): Promise<void>;
  change(id: string, change: SessionChange): Promise<void>;
  load(id: string): Promise<SavedSession | undefined>;
  /** Keeps sessions that are in use from expiring in the store. */
  touch(ids: readonly string[]): void;
  remove(id: string): void;
}

/** The sessions of an HTTP endpoint: bounded, forgotten when idle, each bound to who opened it. */
export class Sessions {
  readonly #sessions = new Map<string, Session>();
  /** Those of each agent, in the order they were opened. */
  readonly #byAgent = new Map<string, AgentSessions>();
  readonly #retained: RetainedBytes;
  readonly #limits: SessionLimits;
  readonly #sweeper: NodeJS.Timeout;
  readonly #at: string | undefined;
  readonly #forget: (id: string) => void;
  readonly #touch: (ids: readonly string[]) => void;
  #touchedAt = performance.now();

  /** `forget` is told of sessions that are over for every replica, `touch` of those that were used since the last time. */
  constructor(
    limits: SessionLimits,
    retained: RetainedBytes,
    at?: string,
    forget: (id: string) => void = () => {},
    touch: (ids: readonly string[]) => void = () => {},
  ) {
    this.#retained = retained;
    this.#at = at;
    this.#forget = forget;
    this.#touch = touch;
    this.#limits = limits;
    const everyMs = Math.max(1_000, Math.min(60_000, limits.sessionIdleMs / 4));
    this.#sweeper = setInterval(() => this.#sweep(), everyMs);
    this.#sweeper.unref();
  }

  get size(): number {
    return this.#sessions.size;
  }

  open(principal: Principal): Session {
    const { maxSessions, maxAgentSessions } = this.#limits;
    const own = this.#byAgent.get(agentOf(principal))?.sessions;
    // Whoever opens one after the other makes room among its own, and only then among those of all.
    if (own && own.size >= maxAgentSessions) this.#forget(this.#evictOldestIdle(own, maxAgentSessions));
    if (this.#sessions.size >= maxSessions) this.#evictOldestIdle(this.#sessions.values(), maxSessions);
    const session = this.#newSession(principal);
    session.principal = principal;
    this.#add(session, principal);
    return session;
  }

  /** Another caller's session and no session at all are the same answer. */
  find(id: string, principal: Principal): Session {
    const session = this.#sessions.get(id);
    if (session?.principal?.app !== principal.app || callerOf(session.principal) !== callerOf(principal)) {
      throw new Fault("SessionNotFound", "there is no such session; begin again with `initialize`", {
        field: "Mcp-Session-Id",
      });
    }
    session.lastUsed = performance.now();
    return session;
  }

  all(): Iterable<Session> {
    return this.#sessions.values();
  }

  get(id: string): Session | undefined {
    return this.#sessions.get(id);
  }

  /** A session that began at another replica goes on here, or was changed there. */
  adopt(saved: SavedSession, revision: Revision, principal: Principal, follow: (uri: string) => () => void): void {
    const known = this.#sessions.get(saved.id);
    const { maxSessions } = this.#limits;
    if (!known && this.#sessions.size >= maxSessions) this.#evictOldestIdle(this.#sessions.values(), maxSessions);
    const session = known ?? this.#newSession(principal, saved.id);
    session.principal = principal;
    session.revision = revision;
    session.phase = saved.phase;
    session.clientCapabilities = saved.clientCapabilities;
    session.logLevel = saved.logLevel;
    const followed = new Set(saved.subscriptions);
    for (const uri of [...session.subscriptions.keys()]) if (!followed.has(uri)) session.unsubscribe(uri);
    for (const uri of followed) session.subscribe(uri, () => follow(uri));
    this.#add(session, principal);
  }

  end(session: Session, reason: string): void {
    this.#sessions.delete(session.id);
    const agent = session.principal && agentOf(session.principal);
    const own = agent === undefined ? undefined : this.#byAgent.get(agent);
    own?.sessions.delete(session);
    if (own?.sessions.size === 0) this.#byAgent.delete(agent as string);
    session.close(reason);
  }

  #add(session: Session, principal: Principal): void {
    this.#sessions.set(session.id, session);
    this.#of(principal).sessions.add(session);
  }

  #newSession(principal: Principal, id?: string): Session {
    const { replay } = this.#of(principal);
    return new Session(undefined, id, this.#at, { session: this.#retained.of(principal), replay });
  }

  #of(principal: Principal): AgentSessions {
    const agent = agentOf(principal);
    const known = this.#byAgent.get(agent);
    if (known) return known;
    const sessions = new Set<Session>();
    const max = Math.floor(this.#limits.maxAgentRetainedBytes * REPLAY_SHARE);
    const replay: Replay = {
      budget: new ByteBudget(max, this.#retained.of(principal)),
      makeRoom: () => [...sessions].some((session) => session.streams.dropOldest()),
    };
    const own = { sessions, replay };
    this.#byAgent.set(agent, own);
    return own;
  }

  *active(): Iterable<Session> {
    for (const session of this.#sessions.values()) if (session.phase === "active") yield session;
  }

  closeAll(): void {
    clearInterval(this.#sweeper);
    for (const session of [...this.#sessions.values()]) this.end(session, "the server is stopping");
  }

  #sweep(): void {
    const limit = performance.now() - this.#limits.sessionIdleMs;
    const isUsed = (session: Session): boolean =>
      session.lastUsed >= this.#touchedAt || session.underWay.size > 0 || session.listening?.live === true;
    this.#touch([...this.#sessions.values()].filter(isUsed).map(({ id }) => id));
    this.#touchedAt = performance.now();
    for (const session of [...this.#sessions.values()]) {
      if (session.lastUsed < limit && session.underWay.size === 0 && !session.listening?.live) {
        this.end(session, "the session was idle");
      }
    }
  }

  #evictOldestIdle(among: Iterable<Session>, most: number): string {
    let oldest: Session | undefined;
    for (const session of among) {
      if (session.underWay.size > 0 || session.listening?.live) continue;
      if (!oldest || session.lastUsed < oldest.lastUsed) oldest = session;
    }
    if (!oldest) throw new Fault("TooMany", `${most} sessions are open and in use`);
    this.end(oldest, "the session made room for another");
    return oldest.id;
  }
}

interface AgentSessions {
  readonly sessions: Set<Session>;
  readonly replay: Replay;
}

type SessionLimits = Pick<
  GatewayLimits,
  "maxSessions" | "maxAgentSessions" | "sessionIdleMs" | "maxAgentRetainedBytes"
>;

/** Whose session it is. Names have no line breaks. */
export function callerOf({ agent, holder }: Pick<Principal, "agent" | "holder">): string {
  return holder === undefined ? agent : `${agent}\n${holder}`;
}

function agentOf({ app, agent }: Principal): string {
  return JSON.stringify([app, agent]);
}
