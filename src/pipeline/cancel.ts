// Cancellation of one call (by the client, by a timeout, or because the peer disconnected), and the timeouts themselves.
// The AbortSignal is created when a handler reads it, since most never do. The deadlines of many calls share one timer, a
// wheel of linked lists: setting and cancelling one is a few pointers.

import type { Fault } from "../mcp/index.js";

export class Cancel {
  #fault: Fault | undefined;
  #controller: AbortController | undefined;
  #listener: ((fault: Fault) => void) | undefined;
  /** Few calls have more than one. */
  #more: ((fault: Fault) => void)[] | undefined;

  /** The caller cancelled the request, and waits for no answer. */
  #withdrawn = false;

  get withdrawn(): boolean {
    return this.#withdrawn;
  }

  get fault(): Fault | undefined {
    return this.#fault;
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#fault) this.#controller.abort(this.#fault);
    }
    return this.#controller.signal;
  }

  /** The first reason stays. */
  abort(fault: Fault): void {
    if (this.#fault) return;
    this.#fault = fault;
    this.#controller?.abort(fault);
    this.#listener?.(fault);
    for (const listener of this.#more ?? []) listener(fault);
  }

  withdraw(fault: Fault): void {
    this.#withdrawn = true;
    this.abort(fault);
  }

  /** Called at once when the call was already cancelled. */
  onAbort(listener: (fault: Fault) => void): void {
    if (!this.#listener) this.#listener = listener;
    else if (this.#more) this.#more.push(listener);
    else this.#more = [listener];
    if (this.#fault) listener(this.#fault);
  }
}

const TICK_MS = 20;
const SLOTS = 512;

export class Deadline {
  readonly at: number;
  readonly fire: () => void;
  prev: Deadline | undefined = undefined;
  next: Deadline | undefined = undefined;
  constructor(at: number, fire: () => void) {
    this.at = at;
    this.fire = fire;
  }

  cancel(): void {
    if (this.prev) this.prev.next = this.next;
    if (this.next) this.next.prev = this.prev;
    this.prev = undefined;
    this.next = undefined;
  }
}

const NOTHING = (): void => {};

/** Fires never early, and late by at most one tick. */
export class Deadlines {
  /** Each slot begins with an entry that is not a deadline, so that inserting and removing have no special cases. */
  readonly #slots: Deadline[] = Array.from({ length: SLOTS }, () => new Deadline(0, NOTHING));
  #tick = 0;
  #origin = 0;
  #timer: NodeJS.Timeout | undefined;

  add(afterMs: number, fire: () => void): Deadline {
    const now = performance.now();
    if (!this.#timer) this.#start(now);
    const deadline = new Deadline(now + afterMs, fire);
    const ticks = Math.ceil((deadline.at - this.#origin) / TICK_MS);
    const head = this.#slots[ticks % SLOTS] as Deadline;
    deadline.prev = head;
    deadline.next = head.next;
    if (head.next) head.next.prev = deadline;
    head.next = deadline;
    return deadline;
  }

  #start(now: number): void {
    this.#origin = now;
    this.#tick = 0;
    this.#timer = setInterval(() => this.#turn(), TICK_MS);
    // A deadline alone does not keep the process alive.
    this.#timer.unref();
  }

  #turn(): void {
    const now = performance.now();
    const until = Math.floor((now - this.#origin) / TICK_MS);
    // A clock that stepped back visits no slot twice, and none before the first.
    if (until <= this.#tick) return;
    for (let steps = 0; this.#tick < until && steps < SLOTS; steps++) this.#visit(++this.#tick, now);
    this.#tick = until;
    if (this.#slots.every((head) => head.next === undefined)) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }

  #visit(tick: number, now: number): void {
    const due: Deadline[] = [];
    for (let entry = (this.#slots[tick % SLOTS] as Deadline).next; entry; entry = entry.next) {
      if (entry.at <= now) due.push(entry);
    }
    for (const deadline of due) {
      deadline.cancel();
      deadline.fire();
    }
  }
}

export const deadlines = new Deadlines();
