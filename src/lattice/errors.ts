/** What can be wrong with what the lattice is given. Each has one name that callers may rely on. */
export type LatticeErrorCode =
  | "LATTICE_MANIFEST"
  | "LATTICE_DUPLICATE"
  | "LATTICE_SYNTAX"
  | "LATTICE_SHAPE"
  | "LATTICE_UNKNOWN_NAME"
  | "LATTICE_EMPTY"
  | "LATTICE_CYCLE"
  | "LATTICE_TOO_LARGE";

export class LatticeError extends Error {
  readonly code: LatticeErrorCode;
  /** The message without its place. */
  readonly text: string;
  /** The line of the workflow file, counted from 1, where there is one. */
  readonly line: number | undefined;
  /** Further problems found in the same file. */
  readonly others: readonly LatticeError[];

  constructor(code: LatticeErrorCode, text: string, line?: number, others: readonly LatticeError[] = []) {
    super(line === undefined ? text : `line ${line}: ${text}`);
    this.name = "LatticeError";
    this.code = code;
    this.text = text;
    this.line = line;
    this.others = others;
  }
}

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
