// How many refusals one credential may cause. Each refusal is decided and recorded, and costs the limits of calls that
// run nothing; past this bound a call is refused before any work is done, and what was refused so is recorded as a
// sum, so that the ledger neither grows with a flood nor is silent about it.

import type { Principal } from "../policy/index.js";
import type { Ledger } from "../ledger/index.js";
import { Fault } from "../mcp/index.js";
import type { Telemetry } from "../telemetry/index.js";

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

export interface RefusalOptions {
  /** Refusals of one credential in a minute, and at once. */
  readonly perMinute: number;
  readonly ledger: Pick<Ledger, "append"> | undefined;
  readonly telemetry: Pick<Telemetry, "log">;
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
    const arrival = this.#arrivals.size === 0 ? undefined : this.#arrivals.get(keyOf(principal));
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
    const key = keyOf(principal);
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
    this.#add(keyOf(principal), { app, agent, since: Date.now(), calls: 1 });
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

function keyOf({ app, agent, credential }: Principal): string {
  return `${app} ${credential ?? agent}`;
}
