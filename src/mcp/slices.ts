// Long work on data of a server (thousands of tools) is cut into slices, so that calls of other applications are
// answered between them. One slice runs in each turn of the event loop, however many jobs there are.

/** Work for so long before the event loop gets its turn. */
const SLICE_MS = 5;

const waiting: (() => void)[] = [];
let startedAt = performance.now();
let isScheduled = false;

function next(): void {
  startedAt = performance.now();
  const resume = waiting.shift();
  isScheduled = waiting.length > 0;
  if (isScheduled) setImmediate(next);
  resume?.();
}

/** True when the slice under way has lasted long enough; then `await nextSlice()`. */
export function isSliceOver(): boolean {
  return performance.now() - startedAt > SLICE_MS;
}

/** Resolves in a later turn of the event loop, after what has arrived meanwhile was handled. */
export function nextSlice(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(next);
  });
}

/** `each` for every item, in slices. */
export async function inSlices<T>(items: Iterable<T>, each: (item: T) => void): Promise<void> {
  for (const item of items) {
    each(item);
    if (isSliceOver()) await nextSlice();
  }
}
