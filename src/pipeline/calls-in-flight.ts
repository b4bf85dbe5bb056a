// Bounds on calls in flight. A call over a bound is refused before anything is decided or recorded for it, and by the
// head of its request where the head names the method, so that an overload answer costs much less than a call.

import type { Ledger } from "../ledger/index.js";
import { Fault, OVERLOAD } from "../mcp/index.js";
import type { Principal } from "../policy/index.js";
import type { CallTelemetry } from "./types.js";

interface CallLimits {
  /** Calls in flight in this process. */
  readonly maxCalls: number;
  /** Of them, those of one application, and of one agent. */
  readonly maxAppCalls: number;
  readonly maxAgentCalls: number;
}

/** The bound that a call was refused for: calls in flight, messages that wait, or the time that one has waited. */
type CallBound = "agent" | "app" | "process" | "queue" | "deadline";

type Caller = Pick<Principal, "app" | "agent">;

/** Of the calls of the process, the share that only applications with few calls in flight may take. */
const RESERVED_SHARE = 0.25;
/** The reserve is divided among the applications that have calls in flight, and among at least so many. */
const LEAST_FLOORS = 10;

export class CallsInFlight {
  readonly #limits: CallLimits;
  readonly #apps = new Map<string, number>();
  readonly #agents = new Map<string, number>();
  #total = 0;
  readonly #onRefused: (bound: CallBound) => void;
  readonly #onLeave: (() => void)[] = [];

  constructor(limits: CallLimits, onRefused: (bound: CallBound) => void = () => {}) {
    this.#limits = limits;
    this.#onRefused = onRefused;
  }

  /** Why one more call of this caller is refused now; undefined when it is within the bounds. */
  refusal(caller: Caller): Fault | undefined {
    const { maxAppCalls, maxAgentCalls } = this.#limits;
    if ((this.#agents.get(keyOf(caller)) ?? 0) >= maxAgentCalls) {
      this.#onRefused("agent");
      return tooMany(`the agent has ${maxAgentCalls} calls in flight`);
    }
    if ((this.#apps.get(caller.app) ?? 0) >= maxAppCalls) {
      this.#onRefused("app");
      return tooMany(`the application has ${maxAppCalls} calls in flight`);
    }
    return this.#processRoom(caller) > 0 ? undefined : this.#overloaded("process");
  }

  /** A call that came while too many messages of its application wait. */
  queueFull(): Fault {
    this.#onRefused("queue");
    return tooMany("the application has too many messages waiting");
  }

  /** A call that has waited for its turn for too long. */
  overdue(): Fault {
    return this.#overloaded("deadline");
  }

  /** How many more calls of this caller are within the bounds now. */
  room(caller: Caller): number {
    const { maxAppCalls, maxAgentCalls } = this.#limits;
    return Math.min(
      maxAgentCalls - (this.#agents.get(keyOf(caller)) ?? 0),
      maxAppCalls - (this.#apps.get(caller.app) ?? 0),
      this.#processRoom(caller),
    );
  }

  of(app: string): number {
    return this.#apps.get(app) ?? 0;
  }

  /** Called after each call that ended. */
  onLeave(listener: () => void): void {
    this.#onLeave.push(listener);
  }

  /** What a few busy applications leave is enough for every other to have some calls in flight. */
  #processRoom(caller: Caller): number {
    const { maxCalls } = this.#limits;
    const reserve = Math.floor(maxCalls * RESERVED_SHARE);
    if (this.#total < maxCalls - reserve) return maxCalls - reserve - this.#total;
    const floor = Math.ceil(reserve / Math.max(this.#apps.size, LEAST_FLOORS));
    return Math.min(floor - this.of(caller.app), maxCalls - this.#total);
  }

  #overloaded(bound: CallBound): Fault {
    this.#onRefused(bound);
    return new Fault("Unavailable", "the gateway is overloaded; try again after the time given", { extra: OVERLOAD });
  }

  /** INVARIANT: every call that enters leaves exactly once. */
  enter(caller: Caller): void {
    this.#total++;
    add(this.#apps, caller.app, 1);
    add(this.#agents, keyOf(caller), 1);
  }

  leave(caller: Caller): void {
    this.#total--;
    add(this.#apps, caller.app, -1);
    add(this.#agents, keyOf(caller), -1);
    for (const listener of this.#onLeave) listener();
  }
}

/** An application's name has no line break, so two callers never share a key. */
function keyOf({ app, agent }: Caller): string {
  return `${app}\n${agent}`;
}

function add(counts: Map<string, number>, key: string, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

function tooMany(reason: string): Fault {
  return new Fault("TooMany", `${reason}; wait for some of them to end`, { extra: OVERLOAD });
}

const MINUTE = 60_000;
const SUMMARY_MS = 10_000;
/** Callers that are kept apart; idle ones make room. */
const MAX_CALLERS = 100_000;
/** Callers with a record of their own in one summary; the rest are one more. */
const MAX_SUMMARIZED = 1_000;
const OTHERS = "others";

interface Summary {
  readonly app: string;
  readonly agent: string;
  readonly since: number;
  calls: number;
}

interface RefusalOptions {
  /** Refusals of one credential in a minute, and at once. */
  readonly perMinute: number;
  readonly ledger: Pick<Ledger, "append"> | undefined;
  readonly telemetry: Pick<CallTelemetry, "log">;
  readonly now?: () => number;
}

export class Refusals {
  readonly #options: RefusalOptions;
  readonly #now: () => number;
  /** Theoretical arrival times (GCRA) by credential; those that have passed say the same as none. */
  readonly #arrivals = new Map<string, number>();
  #summaries = new Map<string, Summary>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RefusalOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Set when this caller has caused too many refusals; the call is then counted, and must not be decided. */
  exceeded(principal: Principal): Fault | undefined {
    const arrival = this.#arrivals.size === 0 ? undefined : this.#arrivals.get(credentialKey(principal));
    if (arrival === undefined) return undefined;
    const waitMs = Math.ceil(arrival + this.#stepMs - MINUTE - this.#now());
    if (waitMs <= 0) return undefined;
    this.#count(principal);
    return new Fault("RateLimited", `over the limit of ${this.#options.perMinute} refused calls in a minute`, {
      rule: "limit.refusals",
      suggestions: [
        `Try again in ${Math.max(1, Math.ceil(waitMs / 1_000))} s`,
        "Find out why the calls before were refused: repeating them changes nothing",
      ],
      extra: { retry_after_ms: waitMs },
    });
  }

  /** One more refusal of this caller; `cost` where it took more room in the ledger than others. */
  charge(principal: Principal, cost = 1): void {
    const key = credentialKey(principal);
    const now = this.#now();
    if (this.#arrivals.size >= MAX_CALLERS && !this.#arrivals.has(key)) this.#evict(now);
    this.#arrivals.set(key, Math.max(this.#arrivals.get(key) ?? 0, now) + cost * this.#stepMs);
  }

  /** Records what was refused without a record of its own. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const summaries = this.#summaries;
    if (summaries.size === 0) return;
    this.#summaries = new Map();
    const { ledger, telemetry } = this.#options;
    for (const [key, { app, agent, calls, since }] of summaries) {
      const detail = { app, agent, calls, since: new Date(since).toISOString() };
      telemetry.log.warning("calls were refused unseen: their caller is over its limit of refusals", detail);
      try {
        await ledger?.append({ kind: "admin", actor: "gateway", action: "calls.refused", detail });
      } catch {
        // Not lost: it is part of the next summary.
        this.#add(key, { app, agent, since, calls });
      }
    }
  }

  get #stepMs(): number {
    return MINUTE / this.#options.perMinute;
  }

  #count(principal: Principal): void {
    const { app, agent } = principal;
    this.#add(credentialKey(principal), { app, agent, since: Date.now(), calls: 1 });
  }

  #add(key: string, more: Summary): void {
    const isOther = !this.#summaries.has(key) && this.#summaries.size >= MAX_SUMMARIZED;
    const summary = this.#summaries.get(isOther ? OTHERS : key);
    if (summary) summary.calls += more.calls;
    else this.#summaries.set(isOther ? OTHERS : key, isOther ? { ...more, agent: OTHERS } : more);
    this.#timer ??= setTimeout(() => void this.flush(), SUMMARY_MS).unref();
  }

  #evict(now: number): void {
    for (const [key, arrival] of this.#arrivals) if (arrival <= now) this.#arrivals.delete(key);
    // All of them are active: the oldest one starts over.
    for (const key of this.#arrivals.keys()) {
      if (this.#arrivals.size < MAX_CALLERS) return;
      this.#arrivals.delete(key);
    }
  }
}

function credentialKey({ app, agent, credential }: Principal): string {
  return `${app} ${credential ?? agent}`;
}
