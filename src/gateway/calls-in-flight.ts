// Bounds on calls in flight. A call over a bound is refused before anything is decided or recorded for it, and by the
// head of its request where the head names the method, so that refusing costs much less than serving.

import type { Principal } from "../gate/index.js";
import { Fault } from "../protocol/index.js";

export interface CallLimits {
  /** Calls in flight in this process. */
  readonly maxCalls: number;
  /** Of them, those of one application, and of one agent. */
  readonly maxAppCalls: number;
  readonly maxAgentCalls: number;
}

/** The bound that a call was refused for. */
export type CallBound = "agent" | "app" | "process";

type Caller = Pick<Principal, "app" | "agent">;

const RETRY_MS = 1_000;

export class CallsInFlight {
  readonly #limits: CallLimits;
  readonly #apps = new Map<string, number>();
  readonly #agents = new Map<string, number>();
  #total = 0;
  readonly #onRefused: (bound: CallBound) => void;

  constructor(limits: CallLimits, onRefused: (bound: CallBound) => void = () => {}) {
    this.#limits = limits;
    this.#onRefused = onRefused;
  }

  /** Why one more call of this caller is refused now; undefined when it is not. */
  refusal(caller: Caller): Fault | undefined {
    const { maxCalls, maxAppCalls, maxAgentCalls } = this.#limits;
    if ((this.#agents.get(keyOf(caller)) ?? 0) >= maxAgentCalls) {
      this.#onRefused("agent");
      return tooMany(`the agent has ${maxAgentCalls} calls in flight`);
    }
    if ((this.#apps.get(caller.app) ?? 0) >= maxAppCalls) {
      this.#onRefused("app");
      return tooMany(`the application has ${maxAppCalls} calls in flight`);
    }
    if (this.#total < maxCalls) return undefined;
    this.#onRefused("process");
    return new Fault("Unavailable", "the gateway is overloaded; try again after the time given", {
      extra: { retry_after_ms: RETRY_MS },
    });
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
  return new Fault("TooMany", `${reason}; wait for some of them to end`, { extra: { retry_after_ms: RETRY_MS } });
}
