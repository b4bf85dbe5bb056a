// Which connections are read. While more messages of a caller wait than are soon handled, its connections are not read:
// what it sends stays in the buffers of the kernel, where it costs no work, and TCP slows its sender down. They are read
// again as there is room, in turn among applications and agents, and after a second in any case, so that callers get
// an answer. Connections of other callers are not affected.

import type { CallerFlow, FlowConnection } from "../mcp/transports/index.js";
import type { CallsInFlight } from "../pipeline/index.js";

/** Messages that wait in the queue. */
export interface WaitingMessages {
  /** Those of an application. */
  waiting(app: string): number;
  /** Of them, those of an agent. */
  waitingOf(app: string, agent: string): number;
  /** Agents of the application with messages that wait. */
  agents(app: string): number;
  /** Applications with messages that wait. */
  readonly size: number;
}

interface FlowOptions {
  /** A connection that was not read for this long is read in any case; 1 s unless given. */
  readonly maxPauseMs?: number;
  readonly now?: () => number;
}

interface Identity {
  readonly app: string;
  readonly agent: string;
}

/** Messages that wait, of all applications and of one. Enough that the processor never waits for the network. */
const MAX_WAITING = 1_024;
const MAX_APP_WAITING = 64;
const MIN_APP_WAITING = 8;
/** At so many times as many a call is refused: it came on a connection that had to be read. */
const REFUSE_FACTOR = 4;
/** So many refusals of a caller in a second cost too little to stop reading for them. */
const CHEAP_REFUSALS = 32;
const SECOND = 1_000;
/** Connections that are read again because of the deadline, in each period: about 500 a second may have to be refused. */
const OVERDUE_PERIOD_MS = 50;
const OVERDUE_PER_PERIOD = 25;

/** Callers without a connection of their own are dropped above this number. */
const MAX_CALLERS = 10_000;

/** Unauthenticated callers have queues and flows as agents of this application, by address. No application has this name. */
export const ANONYMOUS_APP = " unknown";

const NO_BACKLOG: WaitingMessages = { waiting: () => 0, waitingOf: () => 0, agents: () => 0, size: 0 };

export class FlowControl {
  /** Connections that are not read now. */
  paused = 0;
  readonly maxPauseMs: number;
  readonly now: () => number;
  readonly #calls: CallsInFlight;
  readonly #backlog: WaitingMessages;
  readonly #callers = new Map<string, Flow>();
  /** Callers with paused connections by application, the next in turn first. */
  readonly #waiting = new Map<string, Map<string, Flow>>();
  /** Callers with connections that are read, by application. */
  readonly #reading = new Map<string, Set<Flow>>();
  #isScheduled = false;
  #overdue: NodeJS.Timeout | undefined;

  constructor(calls: CallsInFlight, backlog: WaitingMessages = NO_BACKLOG, options: FlowOptions = {}) {
    this.#calls = calls;
    this.#backlog = backlog;
    this.maxPauseMs = options.maxPauseMs ?? 1_000;
    this.now = options.now ?? (() => performance.now());
    calls.onLeave(() => this.#schedule());
  }

  of({ app, agent }: Identity): Flow {
    // An application's name has no line break, so two callers never share a key.
    const key = `${app}\n${agent}`;
    let flow = this.#callers.get(key);
    if (flow === undefined) {
      if (this.#callers.size >= MAX_CALLERS) this.#dropUnused();
      flow = new Flow(this, key, app, agent);
      this.#callers.set(key, flow);
    }
    return flow;
  }

  /** Messages were handled: paused connections may be read again. */
  handled(): void {
    if (this.paused > 0) this.#resume();
  }

  /** Too many messages of the application wait: a call that was read all the same is refused. */
  isOverfull(app: string): boolean {
    const waiting = this.#backlog.waiting(app);
    return waiting > 0 && waiting >= REFUSE_FACTOR * this.#maxWaiting();
  }

  /** The caller has sent so much that its connections are not read. */
  isFull(flow: Flow): boolean {
    const { app, agent } = flow;
    const waiting = this.#backlog.waiting(app);
    const max = this.#maxWaiting();
    if (waiting >= max) {
      // With its next message. An agent with less than its share of what waits is read on.
      if (waiting >= REFUSE_FACTOR * max || this.#backlog.waitingOf(app, agent) + 1 >= this.#share(app, max))
        return true;
    }
    return flow.isOftenRefused(this.now()) && this.#calls.room(flow) <= 0;
  }

  /** Stops reading connections after a message of this caller, which is full. */
  pauseFrom(flow: Flow): void {
    flow.pauseAll();
    // Where so many agents wait that each has its share with one message, the next ones of all of them wait.
    if (this.#share(flow.app, this.#maxWaiting()) > 1) return;
    for (const other of this.#reading.get(flow.app) ?? []) other.pauseAll();
  }

  /** The flow has its first connection that is read while nothing is under way on it. */
  reads(flow: Flow): void {
    const flows = this.#reading.get(flow.app);
    if (flows === undefined) this.#reading.set(flow.app, new Set([flow]));
    else flows.add(flow);
  }

  readsNoMore(flow: Flow): void {
    const flows = this.#reading.get(flow.app);
    flows?.delete(flow);
    if (flows?.size === 0) this.#reading.delete(flow.app);
  }

  /** The flow has its first paused connection. */
  waits(flow: Flow): void {
    let agents = this.#waiting.get(flow.app);
    if (agents === undefined) {
      agents = new Map();
      this.#waiting.set(flow.app, agents);
    }
    agents.set(flow.agent, flow);
    this.#overdue ??= setInterval(() => this.#resumeOverdue(), OVERDUE_PERIOD_MS).unref();
  }

  /** The flow has no paused connection any more. */
  waitsNoMore(flow: Flow): void {
    const agents = this.#waiting.get(flow.app);
    agents?.delete(flow.agent);
    if (agents?.size === 0) this.#waiting.delete(flow.app);
    if (this.#waiting.size > 0) return;
    clearInterval(this.#overdue);
    this.#overdue = undefined;
  }

  forget(flow: Flow): void {
    if (this.#callers.get(flow.key) === flow) this.#callers.delete(flow.key);
  }

  #dropUnused(): void {
    for (const flow of this.#callers.values()) if (flow.isUnused) this.forget(flow);
  }

  /** How many of the messages of an application that wait may be one agent's. */
  #share(app: string, max: number): number {
    const agents = Math.max(1, this.#backlog.agents(app), this.#waiting.get(app)?.size ?? 0);
    return Math.max(1, Math.floor(max / agents));
  }

  #maxWaiting(): number {
    const share = Math.floor(MAX_WAITING / Math.max(1, this.#backlog.size));
    return Math.max(MIN_APP_WAITING, Math.min(MAX_APP_WAITING, share));
  }

  #schedule(): void {
    if (this.paused === 0 || this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#resume();
    });
  }

  /** Reads as many connections again as there is room for; what they hold has been read when this runs next. */
  #resume(): void {
    const max = this.#maxWaiting();
    for (const [app, agents] of [...this.#waiting]) {
      let room = max - this.#backlog.waiting(app);
      let skipped = 0;
      const rooms = new Map<Flow, number>();
      while (room > 0 && skipped < agents.size) {
        const [agent, flow] = agents.entries().next().value as [string, Flow];
        const own = rooms.get(flow) ?? this.#calls.room(flow) - this.#backlog.waitingOf(app, agent);
        rooms.set(flow, own - 1);
        // To the end: the others come first.
        agents.delete(agent);
        agents.set(agent, flow);
        if (own <= 0) skipped++;
        else {
          skipped = 0;
          room--;
          flow.resumeOldest();
        }
      }
    }
  }

  #resumeOverdue(): void {
    const before = this.now() - this.maxPauseMs;
    let left = OVERDUE_PER_PERIOD;
    for (let isDone = false; !isDone && left > 0; ) {
      isDone = true;
      for (const agents of [...this.#waiting.values()]) {
        const [next] = agents;
        if (next === undefined || left === 0) continue;
        const [agent, flow] = next;
        agents.delete(agent);
        agents.set(agent, flow);
        if (flow.oldestSince > before) continue;
        flow.resumeOldest();
        left--;
        isDone = false;
      }
    }
  }
}

/** `Flow` holds the connections of one caller on which nothing is under way. */
export class Flow implements CallerFlow {
  readonly key: string;
  readonly app: string;
  readonly agent: string;
  readonly #control: FlowControl;
  readonly isAnonymous: boolean;
  readonly #read = new Set<FlowConnection>();
  /** With the time since when they are not read, longest first. */
  readonly #paused = new Map<FlowConnection, number>();
  /** Connections that carry its requests. */
  #attached = 0;
  #refusals = 0;
  #refusalsSince = 0;

  constructor(control: FlowControl, key: string, app: string, agent: string) {
    this.#control = control;
    this.key = key;
    this.app = app;
    this.agent = agent;
    this.isAnonymous = app === ANONYMOUS_APP;
  }

  get isUnused(): boolean {
    return this.#attached === 0;
  }

  attach(): void {
    this.#attached++;
  }

  detach(connection: FlowConnection): void {
    this.leave(connection);
    if (--this.#attached === 0) this.#control.forget(this);
  }

  get oldestSince(): number {
    for (const since of this.#paused.values()) return since;
    return Number.POSITIVE_INFINITY;
  }

  /** A call of this caller was refused because of a bound. */
  refused(): void {
    const now = this.#control.now();
    if (now - this.#refusalsSince > SECOND) {
      this.#refusalsSince = now;
      this.#refusals = 0;
    }
    this.#refusals++;
  }

  isOftenRefused(now: number): boolean {
    return this.#refusals >= CHEAP_REFUSALS && now - this.#refusalsSince <= SECOND;
  }

  /** A message of this caller arrived. */
  arrived(): void {
    if (this.#control.isFull(this)) this.#control.pauseFrom(this);
  }

  pauseAll(): void {
    if (this.#read.size === 0) return;
    for (const connection of this.#read) this.#pause(connection);
    this.#read.clear();
    this.#control.readsNoMore(this);
  }

  rest(connection: FlowConnection): void {
    if (this.#control.isFull(this)) return this.#pause(connection);
    this.#addRead(connection);
    connection.resume();
  }

  leave(connection: FlowConnection): void {
    if (this.#read.delete(connection)) {
      if (this.#read.size === 0) this.#control.readsNoMore(this);
      return;
    }
    if (!this.#paused.delete(connection)) return;
    this.#control.paused--;
    if (this.#paused.size === 0) this.#control.waitsNoMore(this);
  }

  resumeOldest(): void {
    for (const connection of this.#paused.keys()) {
      this.leave(connection);
      this.#addRead(connection);
      connection.resume();
      return;
    }
  }

  #addRead(connection: FlowConnection): void {
    this.#read.add(connection);
    if (this.#read.size === 1) this.#control.reads(this);
  }

  #pause(connection: FlowConnection): void {
    connection.pause();
    this.#paused.set(connection, this.#control.now());
    this.#control.paused++;
    if (this.#paused.size === 1) this.#control.waits(this);
  }
}
