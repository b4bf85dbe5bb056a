// What one caller may use of what all share, so that nobody keeps others from it: so many at once, and so many in a
// while.

import { Fault } from "../../mcp/index.js";

export interface ShareLimits {
  /** At once, by one agent and by all agents of one application. */
  readonly perAgent: number;
  readonly perApp: number;
  /** In a burst, and by the second after it. */
  readonly burst: number;
  readonly perSecond: number;
}

/** Whose it is. */
export interface Owner {
  readonly app: string;
  readonly agent: string;
}

interface Share {
  held: number;
  /** When everything that was taken so far will have been refilled. */
  refilledAt: number;
}

const MAX_KEPT = 10_000;

export class Shares {
  readonly #what: string;
  readonly #limits: ShareLimits;
  readonly #agents = new Map<string, Share>();
  readonly #apps = new Map<string, number>();
  readonly #now: () => number;

  constructor(what: string, limits: ShareLimits, now: () => number = () => performance.now()) {
    this.#what = what;
    this.#limits = limits;
    this.#now = now;
  }

  /** Gives back what ends it, or throws. */
  take({ app, agent }: Owner): () => void {
    const { perAgent, perApp, burst, perSecond } = this.#limits;
    const key = JSON.stringify([app, agent]);
    const now = this.#now();
    const share = this.#agents.get(key) ?? this.#fresh(key, now);
    const inApp = this.#apps.get(app) ?? 0;
    const eachMs = 1_000 / perSecond;
    const refilledAt = Math.max(share.refilledAt, now) + eachMs;
    const isOver = share.held >= perAgent || inApp >= perApp || refilledAt - now > burst * eachMs;
    if (isOver) throw new Fault("TooMany", `too many ${this.#what} of one caller; try again in a moment`);
    share.held++;
    share.refilledAt = refilledAt;
    this.#apps.set(app, inApp + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      share.held--;
      const left = (this.#apps.get(app) ?? 1) - 1;
      if (left > 0) this.#apps.set(app, left);
      else this.#apps.delete(app);
    };
  }

  #fresh(key: string, now: number): Share {
    if (this.#agents.size >= MAX_KEPT) {
      // One that holds nothing and has been refilled says the same as a new one.
      for (const [each, { held, refilledAt }] of this.#agents) {
        if (held === 0 && refilledAt <= now) this.#agents.delete(each);
      }
      if (this.#agents.size >= MAX_KEPT) throw new Fault("TooMany", `too many callers have ${this.#what}`);
    }
    const share: Share = { held: 0, refilledAt: now };
    this.#agents.set(key, share);
    return share;
  }
}
