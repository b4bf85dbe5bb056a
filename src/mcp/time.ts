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

/** Of the main thread, the part that reading for one application may take while others are active. */
const SHARE = 1 / 3;
/** So much longer than what was spent the others have their time. */
const PAUSE_FACTOR = 1 / SHARE - 1;
/** An application that did something so recently is active. */
const RECENT_MS = 1_000;
/** Less than this is not worth a pause. */
const LEAST_PAUSE_MS = 5;
/** A stalled machine is not a reason to stop an application for longer. */
const MAX_PAUSE_MS = 500;
/** What the system takes to hand over a byte. */
const READ_MS_PER_BYTE = 5e-7;
const MAX_SHARES = 10_000;

const shares = new Map<string, TimeShare>();
let lastActive = "";
/** When another application than the one before was last active. */
let mixedAt = Number.NEGATIVE_INFINITY;

export function noteActive(app: string, now: number = performance.now()): void {
  if (app === lastActive) return;
  if (lastActive !== "") mixedAt = now;
  lastActive = app;
}

/** `TimeShare` is what reading for one application has cost lately. */
export class TimeShare {
  readonly #app: string;
  /** For so long from `#at` on, the application has had its share. */
  #owedMs = 0;
  #at = 0;

  constructor(app: string) {
    this.#app = app;
  }

  get isIdle(): boolean {
    return performance.now() - this.#at > this.#owedMs;
  }

  /** Books the time that some bytes took; returns for how long no more are to be read. */
  spend(ms: number, bytes: number, now: number = performance.now()): number {
    noteActive(this.#app, now);
    const spent = ms + bytes * READ_MS_PER_BYTE;
    const owed = Math.max(0, this.#owedMs - (now - this.#at)) + spent * PAUSE_FACTOR;
    this.#at = now;
    this.#owedMs = now - mixedAt > RECENT_MS ? 0 : Math.min(owed, MAX_PAUSE_MS);
    return this.#owedMs < LEAST_PAUSE_MS ? 0 : this.#owedMs;
  }
}

export function timeShareOf(app: string): TimeShare {
  const known = shares.get(app);
  if (known) return known;
  if (shares.size >= MAX_SHARES) for (const [each, share] of shares) if (share.isIdle) shares.delete(each);
  const share = new TimeShare(app);
  shares.set(app, share);
  return share;
}

/** What can be told to wait. */
export interface Pausable {
  pause(): unknown;
  resume(): unknown;
}

/** Runs `read` for some bytes that came from `source`, which then waits if the application had more than its share. */
export function readWithin(share: TimeShare | undefined, source: Pausable, bytes: number, read: () => void): void {
  if (share === undefined) return read();
  const startedAt = performance.now();
  read();
  const now = performance.now();
  const pauseMs = share.spend(now - startedAt, bytes, now);
  if (pauseMs === 0) return;
  source.pause();
  setTimeout(() => source.resume(), pauseMs);
}

/** Milliseconds since 1970, as the clock stood at the start of this process plus the time since then. */
export function steadyNow(): number {
  return performance.timeOrigin + performance.now();
}

/** The steady time at which `at` will have passed, by a clock that shows `clockNow` at this moment. */
export function steadyTimeOf(at: number, clockNow: number): number {
  return steadyNow() + at - clockNow;
}
