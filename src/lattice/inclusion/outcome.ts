import type { Atom, Formula } from "./formula.js";

/** What is known about the values that satisfy a conjunction. */
export type InclusionOutcome =
  /** Proved: there is none. `relies` is the outermost open question that the proof assumed to have none. */
  | { readonly is: "none"; readonly relies: number }
  /** `sure`: by every rule used this value satisfies the conjunction; otherwise it is a guess worth trying. */
  | { readonly is: "some"; readonly value: unknown; readonly sure: boolean }
  | { readonly is: "unknown" };

export const NOTHING = Infinity;
export const none: InclusionOutcome = { is: "none", relies: NOTHING };
export const unknown: InclusionOutcome = { is: "unknown" };

export function some(value: unknown, sure: boolean): InclusionOutcome {
  return { is: "some", value, sure };
}

/** One atom of a conjunction, as it stands or negated. */
export interface Literal {
  readonly atom: Atom;
  readonly holds: boolean;
}

/** Gathers the outcomes of alternatives: the first sure value wins, and none only when every alternative has none. */
export class Best {
  #outcome: InclusionOutcome = none;

  /** True when there is nothing left to look for. */
  add(outcome: InclusionOutcome): boolean {
    const best = this.#outcome;
    if (best.is === "some" && best.sure) return true;
    if (outcome.is === "some" && (best.is !== "some" || outcome.sure)) this.#outcome = outcome;
    else if (outcome.is === "unknown" && best.is === "none") this.#outcome = outcome;
    else if (outcome.is === "none" && best.is === "none" && outcome.relies < best.relies) this.#outcome = outcome;
    return this.#outcome.is === "some" && this.#outcome.sure;
  }

  get outcome(): InclusionOutcome {
    return this.#outcome;
  }
}

/** What the theories of strings, arrays and objects may ask of the solver. */
export interface Solving {
  solve(formulas: readonly Formula[], kinds?: number): InclusionOutcome;
  /** Whether a string satisfies a formula; undefined when it cannot be told. */
  accepts(formula: Formula, text: string): boolean | undefined;
  spend(amount?: number): void;
}
