// Timeouts of many calls on one timer: a wheel of linked lists. Setting and cancelling a deadline is a few pointers,
// and a cancelled one is garbage at once, so that the many calls that end in time cost next to nothing.

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
  /** Each slot begins with an entry that is no deadline, so that inserting and removing have no special cases. */
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
    // A deadline alone does not keep the process alive: whoever waits for the call does.
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
