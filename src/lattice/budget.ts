/** Thrown when a count runs out; caught at the public door, where it becomes `unknown`. */
export class BudgetExceeded extends Error {
  readonly code = "LATTICE_BUDGET";
}

/** A counter that can only go down. No clock: the same question always gets the same answer. */
export class Budget {
  #left: number;
  readonly #what: string;
  readonly #limit: number;

  constructor(what: string, limit: number) {
    this.#what = what;
    this.#limit = limit;
    this.#left = limit;
  }

  spend(amount = 1): void {
    this.#left -= amount;
    if (this.#left < 0) throw new BudgetExceeded(`the budget of ${this.#limit} ${this.#what} ran out`);
  }

  get spent(): number {
    return this.#limit - this.#left;
  }
}
