// A fair share of the processor. One application that sends without pause is let in a message at a time, and
// between those come the messages of the others; one that is alone is not held back. While others are there, a message
// that took long is followed by a pause of its application in proportion: what counts is time, not messages.

import { noteActive } from "../mcp/index.js";
import type { Backlog } from "./flow-control.js";

interface Caller {
  readonly app: string;
  readonly agent: string;
}

interface Waiting {
  readonly agent: string;
  readonly run: () => void;
  readonly chars: number;
  /** True once the caller has left: the message then costs no turn. */
  readonly isOver: () => boolean;
}

const NEVER = (): boolean => false;

interface Line {
  /** Those before `first` have had their turn and are released. */
  waiting: (Waiting | undefined)[];
  first: number;
  /** How many of them wait, by agent. */
  readonly agents: Map<string, number>;
  /** Let in since the others last had their turn. */
  taken: number;
  /** No message is let in before. */
  readyAt: number;
}

/** Messages of one application in one go, while others are there. With two, a flood cost the others half as much again. */
const AT_ONCE = 1;
/** While an application is alone. One that is read without end would keep all others from being read. */
const AT_ONCE_ALONE = 16;
/** With fewer calls in flight an application that is alone does not wait for a turn. */
const FEW_CALLS = 64;
/** Whoever sent something so recently is there. */
const RECENT_MS = 1_000;
/** A message that takes no longer needs no pause. */
const SHORT_MS = 2;
/** What it took to receive and decode a message before its turn, for each of its characters. */
const READ_MS_PER_CHAR = 3e-6;
/** So many times as long as its message took an application pauses. */
const PAUSE_FACTOR = 2;
/** A machine that stalled is no reason to stop an application for longer. */
const MAX_PAUSE_MS = 500;
/** The released places of the array are kept until there are so many. */
const CUT_AFTER = 1_024;

export interface TurnsOptions {
  readonly now?: () => number;
  /** Calls of an application that are in flight. */
  readonly inFlight?: (app: string) => number;
  /** Called after messages that waited had their turn. */
  readonly turned?: () => void;
}

export class FairQueue implements Backlog {
  readonly #lines = new Map<string, Line>();
  readonly #now: () => number;
  readonly #inFlight: (app: string) => number;
  readonly #turned: () => void;
  #isScheduled = false;
  /** Set while all that waits belongs to applications that pause. */
  #pause: NodeJS.Timeout | undefined;
  #last = "";
  /** When somebody else than the one before was last heard. */
  #mixedAt = Number.NEGATIVE_INFINITY;

  constructor({ now = () => performance.now(), inFlight = () => 0, turned = () => {} }: TurnsOptions = {}) {
    this.#now = now;
    this.#inFlight = inFlight;
    this.#turned = turned;
  }

  get size(): number {
    return this.#lines.size;
  }

  waiting(app: string): number {
    const line = this.#lines.get(app);
    return line === undefined ? 0 : line.waiting.length - line.first;
  }

  waitingOf(app: string, agent: string): number {
    return this.#lines.get(app)?.agents.get(agent) ?? 0;
  }

  agents(app: string): number {
    return this.#lines.get(app)?.agents.size ?? 0;
  }

  /** Now, or when the messages of others that came before have had their turn. */
  take({ app, agent }: Caller, run: () => void, chars = 0, isOver: () => boolean = NEVER): void {
    const now = this.#now();
    noteActive(app);
    if (app !== this.#last) {
      if (this.#last !== "") this.#mixedAt = now;
      this.#last = app;
    }
    if (this.#lines.size === 0 && !this.#isMixed(now) && this.#inFlight(app) < FEW_CALLS) return run();
    let line = this.#lines.get(app);
    if (!line) {
      line = { waiting: [], first: 0, agents: new Map(), taken: 0, readyAt: now };
      this.#lines.set(app, line);
    }
    this.#schedule(0);
    const next = { agent, run, chars, isOver };
    if (line.taken < this.#atOnce(now) && line.waiting.length === 0 && line.readyAt <= now) this.#run(line, next, now);
    else {
      line.waiting.push(next);
      line.agents.set(agent, (line.agents.get(agent) ?? 0) + 1);
    }
  }

  #isMixed(now: number): boolean {
    return now - this.#mixedAt <= RECENT_MS;
  }

  #atOnce(now: number): number {
    return this.#isMixed(now) ? AT_ONCE : AT_ONCE_ALONE;
  }

  #run(line: Line, { run, chars }: Waiting, startedAt: number): void {
    line.taken++;
    try {
      run();
    } finally {
      const endedAt = this.#now();
      const tookMs = endedAt - startedAt + chars * READ_MS_PER_CHAR;
      if (tookMs > SHORT_MS) line.readyAt = endedAt + Math.min(PAUSE_FACTOR * tookMs, MAX_PAUSE_MS);
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
    for (const [app, line] of this.#lines) {
      line.taken = 0;
      if (line.waiting.length === 0 && line.readyAt <= now) this.#lines.delete(app);
    }
    let firstAt = Number.POSITIVE_INFINITY;
    const atOnce = this.#atOnce(now);
    for (const line of this.#lines.values()) {
      dropOver(line);
      while (line.readyAt <= now && line.taken < atOnce) {
        const next = shift(line);
        if (!next) break;
        this.#run(line, next, this.#now());
        dropOver(line);
      }
      firstAt = Math.min(firstAt, line.readyAt);
    }
    if (this.#lines.size > 0) this.#schedule(firstAt - this.#now());
    this.#turned();
  }
}

/** INVARIANT: what waits is bounded by the connections and requests that the transport has open, because the rest goes here. */
function dropOver(line: Line): void {
  while (line.waiting[line.first]?.isOver()) shift(line);
}

/** The next in line. The array is cut now and then: shifting it each time would cost as much as it is long. */
function shift(line: Line): Waiting | undefined {
  const next = line.waiting[line.first];
  // A closure holds the whole text of its message, which is charged to no budget once it has been answered.
  if (next) {
    line.waiting[line.first++] = undefined;
    const left = (line.agents.get(next.agent) ?? 1) - 1;
    if (left > 0) line.agents.set(next.agent, left);
    else line.agents.delete(next.agent);
  }
  if (line.first === line.waiting.length || line.first >= CUT_AFTER) {
    line.waiting = line.waiting.slice(line.first);
    line.first = 0;
  }
  return next;
}
