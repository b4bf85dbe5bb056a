// An attempt that was made just before a server came back may never be answered. So it is made again while nothing came
// back: the first success counts.

import { Fault } from "../mcp/index.js";
import { type Cancellation, cancellation } from "../mcp/session/index.js";

const NOT_NEEDED = new Fault("Cancelled", "another attempt is waited for");

/**
 * At most two attempts are under way: the first one, which alone decides that all have failed, and the newest.
 * `discard` gets what an attempt that was given up results in all the same.
 */
export function again<T>(
  attempt: (cancel: Cancellation) => Promise<T>,
  everyMs: number,
  discard: (late: T) => void = () => {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    const first = cancellation();
    let newest = first;
    let isOver = false;
    const end = (): void => {
      isOver = true;
      clearInterval(timer);
      for (const each of [first, newest]) each.stop(NOT_NEEDED);
    };
    const begin = (one: ReturnType<typeof cancellation>): void => {
      attempt(one.cancel).then(
        (value) => {
          if (isOver) return discard(value);
          resolve(value);
          end();
        },
        (error: unknown) => {
          if (isOver || one !== first) return;
          reject(error as Error);
          end();
        },
      );
    };
    const timer = everyMs > 0 ? setInterval(next, everyMs) : undefined;
    function next(): void {
      if (newest !== first) newest.stop(NOT_NEEDED);
      newest = cancellation();
      begin(newest);
    }
    begin(first);
  });
}
