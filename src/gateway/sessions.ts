// The sessions of an HTTP endpoint, and where they are kept so that every replica finds them.

import { ByteBudget, Fault, type JsonObject, type Phase, type RetainedBytes, type Revision } from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { GatewayLimits } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { SessionTable } from "../storage/index.js";
import { Session } from "./session.js";
import type { Replay } from "./streams.js";

/** Of what an agent may keep, so much is for events that it can ask for again. */
const REPLAY_SHARE = 1 / 4;

/** A session as another replica can take it over: everything but its streams and what is under way. */
interface SavedSession {
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
export interface SavedSessionChange {
  readonly logLevel?: LogLevel;
  readonly subscribe?: string;
  readonly unsubscribe?: string;
}

/** Keeps sessions where every replica finds them. */
export interface SessionKeeper {
  save(session: Omit<SavedSession, "subscriptions">): Promise<void>;
  change(id: string, change: SavedSessionChange): Promise<void>;
  load(id: string): Promise<SavedSession | undefined>;
  /** Keeps sessions that are in use from expiring in the store. */
  touch(ids: readonly string[]): void;
  remove(id: string): void;
}

/** The sessions of an HTTP endpoint: bounded, ended when idle, each bound to its caller. */
export class Sessions {
  readonly #sessions = new Map<string, Session>();
  /** Those of each agent, in the order they were opened. */
  readonly #byAgent = new Map<string, AgentSessions>();
  readonly #retained: RetainedBytes;
  readonly #limits: SessionLimits;
  readonly #sweeper: NodeJS.Timeout;
  readonly #at: string | undefined;
  readonly #keeper: SessionKeeper | undefined;
  #touchedAt = performance.now();

  constructor(limits: SessionLimits, retained: RetainedBytes, at?: string, keeper?: SessionKeeper) {
    this.#retained = retained;
    this.#at = at;
    this.#keeper = keeper;
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
    // An agent that opens one after the other makes room among its own, and only then among those of all.
    if (own && own.size >= maxAgentSessions) this.#keeper?.remove(this.#evictOldestIdle(own, maxAgentSessions));
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

  /** Continues a session that began at another replica, or was changed there. */
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
    this.#keeper?.touch([...this.#sessions.values()].filter(isUsed).map(({ id }) => id));
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

const TRIES = 5;
/** The store prolongs at most so many at once. */
const TOUCH_AT_ONCE = 1_000;

export function storedSessions(store: SessionTable, replica: string, ttlMs: number): SessionKeeper {
  return {
    async save({ id, app, caller, revision, phase, clientCapabilities, logLevel }) {
      const state: JsonObject = { phase, clientCapabilities, logLevel };
      for (let i = 0; i < TRIES; i++) {
        const stored = await store.get(id);
        if (!stored) {
          await store.add({ id, app, principal: caller, revision, state, owner: replica, ttlMs });
          return;
        }
        // Every replica is notified of a new owner, and a handshake that stays at one concerns no other.
        const owner = stored.owner === replica ? {} : { owner: replica };
        const change = { state: { ...stored.state, ...state }, ...owner, ttlMs };
        if (await store.update(id, stored.version, change)) return;
      }
    },
    async change(id, change) {
      for (let i = 0; i < TRIES; i++) {
        const stored = await store.get(id);
        if (!stored) return;
        const state = changed(stored.state, change);
        if (await store.update(id, stored.version, { state, owner: replica, ttlMs })) return;
      }
    },
    async load(id) {
      const stored = await store.get(id);
      if (!stored) return undefined;
      const { app, principal: caller, revision, state } = stored;
      return {
        id,
        app,
        caller,
        revision,
        phase: state.phase as Phase,
        clientCapabilities: (state.clientCapabilities ?? {}) as JsonObject,
        logLevel: (state.logLevel ?? "info") as LogLevel,
        subscriptions: subscriptionsIn(state),
      };
    },
    touch(ids) {
      for (let i = 0; i < ids.length; i += TOUCH_AT_ONCE) {
        // Where the store is unreachable now, the next sweep prolongs them, long before they expire.
        void store.touch(ids.slice(i, i + TOUCH_AT_ONCE), ttlMs).catch(() => {});
      }
    },
    remove: (id) => void store.remove(id).catch(() => {}),
  };
}

/** Laid over what is stored, since another replica may have changed something else meanwhile. */
function changed(state: JsonObject, { logLevel, subscribe, unsubscribe }: SavedSessionChange): JsonObject {
  const subscriptions = new Set(subscriptionsIn(state));
  if (subscribe !== undefined) subscriptions.add(subscribe);
  if (unsubscribe !== undefined) subscriptions.delete(unsubscribe);
  return { ...state, ...(logLevel === undefined ? {} : { logLevel }), subscriptions: [...subscriptions] };
}

function subscriptionsIn({ subscriptions }: JsonObject): string[] {
  return Array.isArray(subscriptions) ? subscriptions.filter((uri) => typeof uri === "string") : [];
}
