// A text that strangers may ask for as often as they like. It is made a few times a second at most: past that, they share
// the last one.

const MADE_PER_SECOND = 8;
const SECOND = 1_000;

export class SharedText {
  readonly #make: () => Promise<string>;
  #last: Promise<string> | undefined;
  /** GCRA: when the next making would conform. */
  #nextAt = 0;

  constructor(make: () => Promise<string>) {
    this.#make = make;
  }

  get(): Promise<string> {
    const now = performance.now();
    const next = Math.max(this.#nextAt, now) + SECOND / MADE_PER_SECOND;
    if (this.#last !== undefined && next - now > SECOND) return this.#last;
    this.#nextAt = next;
    const text = this.#make();
    this.#last = text;
    text.catch(() => {
      if (this.#last === text) this.#last = undefined;
    });
    return text;
  }
}
