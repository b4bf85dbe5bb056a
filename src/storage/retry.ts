// Waiting for a store that is away for a moment: longer each time, with jitter, and only up to a deadline.

export interface Backoff {
  /** Waits; false when the deadline would pass first. */
  pause(): Promise<boolean>;
  /** Until the deadline, and never less than what one answer takes. */
  readonly leftMs: number;
}

const FIRST_MS = 5;
const MOST_MS = 500;
const LEAST_LEFT_MS = 100;

export function backoff(withinMs: number): Backoff {
  const deadline = performance.now() + withinMs;
  let next = FIRST_MS;
  return {
    async pause() {
      const left = deadline - performance.now();
      if (left < FIRST_MS) return false;
      const ms = Math.min(left, next * (0.5 + Math.random()));
      next = Math.min(MOST_MS, next * 2);
      await sleep(ms);
      return true;
    },
    get leftMs() {
      return Math.max(LEAST_LEFT_MS, Math.ceil(deadline - performance.now()));
    },
  };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
