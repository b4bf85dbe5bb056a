// A fair share of the processor. The messages of an application that sends without pause are handled one at a time, with
// those of the others in between; an application that is alone does not wait. While others are active, a message that took
// long is followed by a pause of its application in proportion: what counts is time, not messages.

import { noteActive } from "../mcp/index.js";
import type { WaitingMessages } from "./flow-control.js";

interface Caller {
  readonly app: string;
  readonly agent: string;
}

interface Waiting {
  readonly agent: string;
  readonly run: () => void;
  readonly chars: number;
  /** True once the caller has disconnected: the message is then dropped. */
  readonly isOver: () => boolean;
}

const NEVER = (): boolean => false;

interface AppQueue {
  /** Those before `first` were handled and are released. */
  waiting: (Waiting | undefined)[];
  first: number;
  /** How many of them wait, by agent. */
  readonly agents: Map<string, number>;
  /** Handled since the others were last handled. */
  taken: number;
  /** No message is handled before. */
  readyAt: number;
}

/** Messages of one application in one go, while others are there. With two, a flood cost the others half as much again. */
const AT_ONCE = 1;
/** While an application is alone. One that is read without end would keep all others from being read. */
const AT_ONCE_ALONE = 16;
/** With fewer calls in flight an application that is alone does not wait for a turn. */
const FEW_CALLS = 64;
/** An application that sent something so recently is active. */
const RECENT_MS = 1_000;
/** A message that takes no longer needs no pause. */
const SHORT_MS = 2;
/** What it took to receive and decode a message before its turn, for each of its characters. */
const READ_MS_PER_CHAR = 3e-6;
/** So many times as long as its message took an application pauses. */
const PAUSE_FACTOR = 2;
/** A stalled machine does not stop an application for longer. */
const MAX_PAUSE_MS = 500;
/** The released places of the array are kept until there are so many. */
const CUT_AFTER = 1_024;

interface FairQueueOptions {
  readonly now?: () => number;
  /** Calls of an application that are in flight. */
  readonly inFlight?: (app: string) => number;
  /** Called after messages that waited were handled. */
  readonly onHandled?: () => void;
}

export class FairQueue implements WaitingMessages {
  readonly #queues = new Map<string, AppQueue>();
  readonly #now: () => number;
  readonly #inFlight: (app: string) => number;
  readonly #onHandled: () => void;
  #isScheduled = false;
  /** Set while all that waits belongs to applications that pause. */
  #pause: NodeJS.Timeout | undefined;
  #last = "";
  /** When the application of a message last differed from the one before. */
  #mixedAt = Number.NEGATIVE_INFINITY;

  constructor({ now = () => performance.now(), inFlight = () => 0, onHandled = () => {} }: FairQueueOptions = {}) {
    this.#now = now;
    this.#inFlight = inFlight;
    this.#onHandled = onHandled;
  }

  get size(): number {
    return this.#queues.size;
  }

  waiting(app: string): number {
    const queue = this.#queues.get(app);
    return queue === undefined ? 0 : queue.waiting.length - queue.first;
  }

  waitingOf(app: string, agent: string): number {
    return this.#queues.get(app)?.agents.get(agent) ?? 0;
  }

  agents(app: string): number {
    return this.#queues.get(app)?.agents.size ?? 0;
  }

  /** Runs now, or after the messages of others that came before. */
  enqueue({ app, agent }: Caller, run: () => void, chars = 0, isOver: () => boolean = NEVER): void {
    const now = this.#now();
    noteActive(app);
    if (app !== this.#last) {
      if (this.#last !== "") this.#mixedAt = now;
      this.#last = app;
    }
    if (this.#queues.size === 0 && !this.#isMixed(now) && this.#inFlight(app) < FEW_CALLS) return run();
    let queue = this.#queues.get(app);
    if (!queue) {
      queue = { waiting: [], first: 0, agents: new Map(), taken: 0, readyAt: now };
      this.#queues.set(app, queue);
    }
    this.#schedule(0);
    const next = { agent, run, chars, isOver };
    if (queue.taken < this.#atOnce(now) && queue.waiting.length === 0 && queue.readyAt <= now)
      this.#run(queue, next, now);
    else {
      queue.waiting.push(next);
      queue.agents.set(agent, (queue.agents.get(agent) ?? 0) + 1);
    }
  }

  #isMixed(now: number): boolean {
    return now - this.#mixedAt <= RECENT_MS;
  }

  #atOnce(now: number): number {
    return this.#isMixed(now) ? AT_ONCE : AT_ONCE_ALONE;
  }

  #run(queue: AppQueue, { run, chars }: Waiting, startedAt: number): void {
    queue.taken++;
    try {
      run();
    } finally {
      const endedAt = this.#now();
      const tookMs = endedAt - startedAt + chars * READ_MS_PER_CHAR;
      if (tookMs > SHORT_MS) queue.readyAt = endedAt + Math.min(PAUSE_FACTOR * tookMs, MAX_PAUSE_MS);
    }
  }

  #schedule(waitMs: number): void {
    if (this.#isScheduled) return;
    clearTimeout(this.#pause);
    if (waitMs >= 1) {
      this.#pause = setTimeout(() => this.#next(), waitMs);
      return;
    }
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#next();
    });
  }

  #next(): void {
    const now = this.#now();
    for (const [app, queue] of this.#queues) {
      queue.taken = 0;
      if (queue.waiting.length === 0 && queue.readyAt <= now) this.#queues.delete(app);
    }
    let firstAt = Number.POSITIVE_INFINITY;
    const atOnce = this.#atOnce(now);
    for (const queue of this.#queues.values()) {
      dropOver(queue);
      while (queue.readyAt <= now && queue.taken < atOnce) {
        const next = shift(queue);
        if (!next) break;
        this.#run(queue, next, this.#now());
        dropOver(queue);
      }
      firstAt = Math.min(firstAt, queue.readyAt);
    }
    if (this.#queues.size > 0) this.#schedule(firstAt - this.#now());
    this.#onHandled();
  }
}

/** INVARIANT: what waits is bounded by the connections and requests that the transport has open, because the rest goes here. */
function dropOver(queue: AppQueue): void {
  while (queue.waiting[queue.first]?.isOver()) shift(queue);
}

/** The next message. The array is cut now and then: shifting it each time would cost as much as it is long. */
function shift(queue: AppQueue): Waiting | undefined {
  const next = queue.waiting[queue.first];
  // A closure holds the whole text of its message, which is charged to no budget once it has been answered.
  if (next) {
    queue.waiting[queue.first++] = undefined;
    const left = (queue.agents.get(next.agent) ?? 1) - 1;
    if (left > 0) queue.agents.set(next.agent, left);
    else queue.agents.delete(next.agent);
  }
  if (queue.first === queue.waiting.length || queue.first >= CUT_AFTER) {
    queue.waiting = queue.waiting.slice(queue.first);
    queue.first = 0;
  }
  return next;
}
