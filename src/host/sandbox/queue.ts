// How many commands run at once, and how many may wait for how long.

export interface QueueLimits {
  readonly concurrency: number;
  readonly waiting: number;
  readonly waitMs: number;
}

export type QueueTurn =
  | { readonly kind: "turn"; release(): void }
  | { readonly kind: "aborted" }
  | { readonly kind: "full" | "late" };

interface Waiter {
  readonly concurrency: number;
  readonly admit: () => void;
}

export class Queue {
  #running = 0;
  readonly #waiters = new Set<Waiter>();

  get running(): number {
    return this.#running;
  }

  take(limits: QueueLimits, signal: AbortSignal | undefined): Promise<QueueTurn> {
    if (signal?.aborted === true) return Promise.resolve({ kind: "aborted" });
    if (this.#running < limits.concurrency) return Promise.resolve(this.#admit());
    if (this.#waiters.size >= limits.waiting) return Promise.resolve({ kind: "full" });
    return new Promise((resolve) => {
      const leave = (turn: QueueTurn): void => {
        this.#waiters.delete(waiter);
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        resolve(turn);
      };
      const abort = (): void => leave({ kind: "aborted" });
      const waiter: Waiter = { concurrency: limits.concurrency, admit: () => leave(this.#admit()) };
      const timer = setTimeout(() => leave({ kind: "late" }), limits.waitMs);
      signal?.addEventListener("abort", abort, { once: true });
      this.#waiters.add(waiter);
    });
  }

  #admit(): QueueTurn {
    this.#running++;
    let released = false;
    return {
      kind: "turn",
      release: () => {
        if (released) return;
        released = true;
        this.#running--;
        this.#next();
      },
    };
  }

  #next(): void {
    for (const waiter of this.#waiters) if (this.#running < waiter.concurrency) return waiter.admit();
  }
}
