// Bounds on calls in flight. A call over a bound is refused before anything is decided or recorded for it, and by the
// head of its request where the head names the method, so that refusing costs much less than serving.

import type { Principal } from "../policy/index.js";
import { Fault, OVERLOAD } from "../mcp/index.js";

export interface CallLimits {
  /** Calls in flight in this process. */
  readonly maxCalls: number;
  /** Of them, those of one application, and of one agent. */
  readonly maxAppCalls: number;
  readonly maxAgentCalls: number;
}

/** The bound that a call was refused for: calls in flight, messages that wait, or the time that one has waited. */
export type CallBound = "agent" | "app" | "process" | "queue" | "deadline";

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

  /** Why one more call of this caller is refused now; undefined when it is not. */
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
