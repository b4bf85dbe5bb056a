// Waiting for a store that is away for a moment: longer each time, with jitter, and only up to a deadline.

export interface Backoff {
  /** Waits; false when the deadline would pass first. */
  pause(): Promise<boolean>;
}

const FIRST_MS = 5;
const MOST_MS = 500;

export function backoff(withinMs: number): Backoff {
  const deadline = performance.now() + withinMs;
  let next = FIRST_MS;
  return {
    async pause() {
      const left = deadline - performance.now();
      if (left <= 0) return false;
      const ms = Math.min(left, next * (0.5 + Math.random()));
      next = Math.min(MOST_MS, next * 2);
      await sleep(ms);
      return true;
    },
  };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
