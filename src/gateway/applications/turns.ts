// A fair share of the processor. One application that sends without pause is let in a message at a time, and
// between those come the messages of the others; one that is alone is not held back.

interface Line {
  readonly waiting: (() => void)[];
  /** Let in since the others last had their turn. */
  taken: number;
}

/** Messages of one application in one go, while others are there. With two, a flood cost the others half as much again. */
const AT_ONCE = 1;
/** Whoever sent something so recently is there. */
const RECENT_MS = 1_000;

export class Turns {
  readonly #lines = new Map<string, Line>();
  readonly #now: () => number;
  #isScheduled = false;
  #last = "";
  /** When somebody else than the one before was last heard. */
  #mixedAt = Number.NEGATIVE_INFINITY;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Now, or when the messages of others that came before have had their turn. */
  take(app: string, run: () => void): void {
    const now = this.#now();
    if (app !== this.#last) {
      if (this.#last !== "") this.#mixedAt = now;
      this.#last = app;
    }
    if (now - this.#mixedAt > RECENT_MS && this.#lines.size === 0) return run();
    let line = this.#lines.get(app);
    if (!line) {
      line = { waiting: [], taken: 0 };
      this.#lines.set(app, line);
    }
    this.#schedule();
    if (line.taken < AT_ONCE && line.waiting.length === 0) {
      line.taken++;
      run();
    } else line.waiting.push(run);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#next();
    });
  }

  #next(): void {
    for (const [app, line] of this.#lines) {
      line.taken = 0;
      if (line.waiting.length === 0) this.#lines.delete(app);
    }
    for (const line of this.#lines.values()) {
      // What is waiting is bounded by the connections and requests that the transport lets in.
      for (const run of line.waiting.splice(0, AT_ONCE)) {
        line.taken++;
        run();
      }
    }
    if (this.#lines.size > 0) this.#schedule();
  }
}
