// So many at a time, the others in line.

export class CallSlots {
  readonly #max: number;
  readonly #line: (() => void)[] = [];
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get taken(): number {
    return this.#taken;
  }

  /** True when a turn is free and now the caller's. */
  take(): boolean {
    if (this.#taken >= this.#max) return false;
    this.#taken++;
    return true;
  }

  /** Resolves when it is the caller's turn; a signal that came first gives the place away. */
  wait(isStillWanted: () => boolean): Promise<void> {
    if (this.take()) return Promise.resolve();
    return new Promise((resolve) => {
      this.#line.push(() => {
        if (isStillWanted()) resolve();
        else this.give();
      });
    });
  }

  give(): void {
    const next = this.#line.shift();
    // The turn passes on as it is.
    if (next) next();
    else this.#taken--;
  }
}
