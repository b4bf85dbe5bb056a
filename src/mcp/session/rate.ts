// How much of something there may be in ten seconds.

const WINDOW_MS = 10_000;

export class ByteRate {
  readonly #max: number;
  #count = 0;
  #since = Number.NEGATIVE_INFINITY;

  constructor(max: number) {
    this.#max = max;
  }

  /** False when this is one too many. */
  take(): boolean {
    const now = performance.now();
    if (now - this.#since > WINDOW_MS) {
      this.#since = now;
      this.#count = 0;
    }
    return ++this.#count <= this.#max;
  }
}
