// Tells what changed, at once the first time and then at most so often: a server that announces the same change a
// thousand times a second is heard a few times.

import type { UpstreamChange } from "./types.js";

const QUIET_MS = 200;

export class Announcements {
  readonly #tell: (change: UpstreamChange) => void;
  /** Kinds told a moment ago; true when there was more to tell since. */
  readonly #recent = new Map<string, boolean>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(tell: (change: UpstreamChange) => void) {
    this.#tell = tell;
  }

  /** INVARIANT: resources are bounded by whoever calls. */
  announce(change: UpstreamChange): void {
    const key = typeof change === "string" ? change : `resource ${change.resource}`;
    if (this.#recent.has(key)) {
      this.#recent.set(key, true);
      return;
    }
    this.#recent.set(key, false);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const isMore = this.#recent.get(key);
      this.#recent.delete(key);
      if (isMore) this.announce(change);
    }, QUIET_MS);
    timer.unref();
    this.#timers.add(timer);
    this.#tell(change);
  }

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#recent.clear();
  }
}
