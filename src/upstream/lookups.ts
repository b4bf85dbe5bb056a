// Resolves names for one server. The system's resolver works in threads of the process, two at a time, and cannot be
// stopped: a server with names that are resolved slowly could keep them from every other server. So each server has one
// lookup under way, and after a slow one it pauses for several times as long.

type Resolve = (host: string) => Promise<readonly string[]>;

interface LookupOptions {
  /** A lookup that takes longer is followed by a pause; resolvers repeat a lost query after 5 s. */
  readonly slowMs?: number;
  readonly now?: () => number;
}

/** The pause after a slow lookup, as a multiple of the time that it took. */
const PAUSE_FACTOR = 5;
const MAX_ANSWERS = 64;

export class Lookups {
  readonly #resolve: Resolve;
  readonly #slowMs: number;
  readonly #now: () => number;
  /** Answers of slow lookups, and the last one of each name before them: used during a pause. */
  readonly #answers = new Map<string, Promise<readonly string[]>>();
  #last: Promise<unknown> = Promise.resolve();
  #pausedUntil = Number.NEGATIVE_INFINITY;

  constructor(resolve: Resolve, { slowMs = 2_000, now = () => performance.now() }: LookupOptions = {}) {
    this.#resolve = resolve;
    this.#slowMs = slowMs;
    this.#now = now;
  }

  /** Addresses of the name. Rejects as the resolver does, and during a pause for a name without an answer. */
  resolve(host: string, stop: AbortSignal): Promise<readonly string[]> {
    const answer = this.#last.then(() => this.#next(host, stop));
    this.#last = answer.catch(() => {});
    return answer;
  }

  #next(host: string, stop: AbortSignal): Promise<readonly string[]> {
    stop.throwIfAborted();
    const began = this.#now();
    if (began < this.#pausedUntil) {
      const seconds = Math.ceil((this.#pausedUntil - began) / 1_000);
      const wait = new Error(`names of this server were resolved too slowly; the next one is resolved in ${seconds} s`);
      return this.#answers.get(host) ?? Promise.reject(wait);
    }
    const answer = this.#resolve(host);
    this.#keep(host, answer);
    const settle = (): void => {
      const took = this.#now() - began;
      if (took > this.#slowMs) this.#pausedUntil = this.#now() + PAUSE_FACTOR * took;
    };
    answer.then(settle, settle);
    return answer;
  }

  #keep(host: string, answer: Promise<readonly string[]>): void {
    this.#answers.delete(host);
    this.#answers.set(host, answer);
    for (const oldest of this.#answers.keys()) {
      if (this.#answers.size <= MAX_ANSWERS) return;
      this.#answers.delete(oldest);
    }
  }
}
