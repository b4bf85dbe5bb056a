import type { Budget } from "../errors.js";
import { solveArray } from "./arrays.js";
import {
  ANYTHING,
  Best,
  type Formula,
  type Formulas,
  type InclusionOutcome,
  KIND,
  type Literal,
  NOTHING,
  none,
  type Solving,
  some,
  unknown,
} from "./formula.js";
import { solveNumber } from "./numbers.js";
import { solveObject } from "./objects.js";
import { acceptsString, type Strings } from "./strings.js";

const KINDS = [
  KIND.null,
  KIND.true,
  KIND.false,
  KIND.string,
  KIND.integer,
  KIND.fraction,
  KIND.object,
  KIND.array,
] as const;

/** Below this many combinations of open choices it is cheaper to try them than to look for those already settled. */
const FEW_COMBINATIONS = 4;

/** One way through the choices of a conjunction, as far as it has been made. */
interface Branch {
  readonly kind: number;
  /** Formulas already taken in, compound ones included: their opposites are contradictions. */
  readonly taken: Set<number>;
  readonly literals: Literal[];
  readonly choices: Formula[];
}

/**
 * Finds a value that satisfies a conjunction, or proves that there is none. For each kind of value the choices in the
 * conjunction are tried (a tableau), and what remains is a box of literals that the theory of that kind decides.
 *
 * Values are finite, so a conjunction whose every value contains another value of the same conjunction has none: a
 * question met again while it is open is answered "none", and answers that relied on it are not kept.
 */
export class Solver implements Solving {
  readonly #f: Formulas;
  readonly #strings: Strings;
  readonly #definition: (to: number) => Formula;
  readonly #budget: Budget;
  readonly #maxDepth: number;
  readonly #known = new Map<string, InclusionOutcome>();
  readonly #open = new Map<string, number>();

  constructor(
    f: Formulas,
    strings: Strings,
    definition: (to: number) => Formula,
    budget: Budget,
    limits: { readonly maxDepth: number },
  ) {
    this.#f = f;
    this.#strings = strings;
    this.#definition = definition;
    this.#budget = budget;
    this.#maxDepth = limits.maxDepth;
  }

  spend(amount = 1): void {
    this.#budget.spend(amount);
  }

  accepts(formula: Formula, text: string): boolean | undefined {
    return acceptsString(this.#strings, formula, text, this.#definition);
  }

  solve(formulas: readonly Formula[], kinds: number = ANYTHING): InclusionOutcome {
    // A constraint that always holds is left out of the key: more queries then share one cache entry.
    const asked = formulas.filter((formula) => formula !== this.#f.yes);
    const ids = [...new Set(asked.map((formula) => formula.id))].toSorted((a, b) => a - b);
    const key = `${kinds}:${ids.join()}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const open = this.#open.get(key);
    if (open !== undefined) return { is: "none", relies: open };
    if (this.#open.size >= this.#maxDepth) return unknown;
    const level = this.#open.size;
    this.#open.set(key, level);
    const best = new Best();
    this.search(formulas, kinds, (outcome) => best.add(outcome));
    this.#open.delete(key);
    const { outcome } = best;
    if (outcome.is !== "none") {
      this.#known.set(key, outcome);
      return outcome;
    }
    if (outcome.relies < level) return outcome;
    this.#known.set(key, none);
    return none;
  }

  /** Reports the outcome of every box until `enough` says so. */
  search(formulas: readonly Formula[], kinds: number, enough: (outcome: InclusionOutcome) => boolean): void {
    for (const kind of KINDS) {
      if ((kind & kinds) === 0) continue;
      const branch: Branch = { kind, taken: new Set(), literals: [], choices: [] };
      if (this.#explore(branch, [...formulas], enough)) return;
    }
  }

  #explore(branch: Branch, given: Formula[], enough: (outcome: InclusionOutcome) => boolean): boolean {
    let pending = given;
    do {
      this.spend(1 + ((branch.literals.length + branch.choices.length) >> 4));
      if (!this.#takeIn(branch, pending) || !this.#settle(branch)) return enough(none);
      const narrowed = this.#narrow(branch);
      if (!Array.isArray(narrowed)) return enough(narrowed);
      pending = narrowed;
    } while (pending.length > 0);
    const choice = smallest(branch.choices);
    if (choice === undefined) return enough(this.#box(branch));
    const others = branch.choices.filter((other) => other !== choice);
    for (const part of alternatives(choice)) {
      const next: Branch = {
        kind: branch.kind,
        taken: new Set(branch.taken),
        literals: [...branch.literals],
        choices: [...others],
      };
      if (this.#explore(next, [part], enough)) return true;
    }
    return false;
  }

  /** Takes formulas apart into literals and choices; false on a contradiction. */
  #takeIn(branch: Branch, pending: Formula[]): boolean {
    for (let formula = pending.pop(); formula !== undefined; formula = pending.pop()) {
      const part = this.#f.restrict(formula, branch.kind);
      if (part === this.#f.yes || branch.taken.has(part.id)) continue;
      if (part === this.#f.no || branch.taken.has(this.#f.not(part).id)) return false;
      branch.taken.add(part.id);
      switch (part.op) {
        case "and":
          pending.push(...part.list);
          break;
        case "or":
          branch.choices.push(part);
          break;
        case "one":
          pending.push(this.#exactlyOne(part.list, part.holds, branch.kind));
          break;
        case "ref": {
          this.spend();
          const meaning = this.#definition(part.to);
          pending.push(part.holds ? meaning : this.#f.not(meaning));
          break;
        }
        case "atom":
          branch.literals.push(part);
          break;
        case "kind":
          break;
      }
    }
    return true;
  }

  /** Removes choices already made and alternatives excluded, takes in what has one way left; false if one has none. */
  #settle(branch: Branch): boolean {
    for (let changed = true; changed; ) {
      changed = false;
      for (const choice of branch.choices.splice(0)) {
        const list = alternatives(choice);
        if (list.some((part) => this.#isTaken(branch, part))) {
          changed = true;
          continue;
        }
        const left = list.filter((part) => !this.#isExcluded(branch, part));
        if (left.length === 0) return false;
        const rest = left.length === list.length ? choice : this.#f.or(...left);
        if (rest.op === "or") branch.choices.push(rest);
        else {
          changed = true;
          if (!this.#takeIn(branch, [rest])) return false;
        }
      }
    }
    return true;
  }

  #isTaken(branch: Branch, part: Formula): boolean {
    if (branch.taken.has(part.id)) return true;
    return part.op === "and" && part.list.every((inner) => branch.taken.has(inner.id));
  }

  #isExcluded(branch: Branch, part: Formula): boolean {
    if (branch.taken.has(this.#f.not(part).id)) return true;
    return part.op === "and" && part.list.some((inner) => branch.taken.has(this.#f.not(inner).id));
  }

  /**
   * Asks the theory which alternatives the literals so far imply or exclude. Without this, unions told apart by a tag
   * would be tried in every combination. Returns what is left without a choice, or that nothing is left.
   */
  #narrow(branch: Branch): Formula[] | InclusionOutcome {
    const combinations = branch.choices.reduce((product, choice) => product * alternatives(choice).length, 1);
    if (combinations <= FEW_COMBINATIONS || branch.literals.length === 0) return [];
    const sofar = this.#box(branch);
    if (sofar.is === "none") return sofar;
    const decided: Formula[] = [];
    const open: Formula[] = [];
    for (const choice of branch.choices) {
      const list = alternatives(choice);
      if (list.some((part) => this.#isImplied(branch, part))) continue;
      const left = list.filter((part) => !this.#isImpossible(branch, part));
      if (left.length === 0) return none;
      const rest = left.length === list.length ? choice : this.#f.or(...left);
      (rest.op === "or" ? open : decided).push(rest);
    }
    branch.choices.splice(0, branch.choices.length, ...open);
    return decided;
  }

  // Only proofs that rely on no open question count in these two: what they remove stays removed.
  #isImplied(branch: Branch, part: Formula): boolean {
    if (part.op !== "atom") return false;
    const outcome = this.#box({ ...branch, literals: [...branch.literals, { atom: part.atom, holds: !part.holds }] });
    return outcome.is === "none" && outcome.relies === NOTHING;
  }

  #isImpossible(branch: Branch, part: Formula): boolean {
    const literals = literalsOf(part);
    if (literals === undefined) return false;
    const outcome = this.#box({ ...branch, literals: [...branch.literals, ...literals] });
    return outcome.is === "none" && outcome.relies === NOTHING;
  }

  #box({ kind, literals }: Branch): InclusionOutcome {
    // In proportion to the work: a box of thousands of literals costs more than one of ten.
    this.spend(1 + (literals.length >> 4));
    switch (kind) {
      case KIND.null:
        return some(null, literals.length === 0);
      case KIND.true:
      case KIND.false:
        return some(kind === KIND.true, literals.length === 0);
      case KIND.string:
        return this.#strings.solve(literals);
      case KIND.integer:
      case KIND.fraction:
        return solveNumber(literals, kind === KIND.integer);
      case KIND.array:
        return solveArray(this, this.#f, literals);
      default:
        return solveObject(this, this.#f, literals);
    }
  }

  /** `oneOf` written out. Pairs that are proved to exclude each other need no further word. */
  #exactlyOne(list: readonly Formula[], holds: boolean, kind: number): Formula {
    const f = this.#f;
    const overlaps = new Map<Formula, Formula[]>(list.map((part) => [part, []]));
    const pairs: Formula[] = [];
    for (const [i, a] of list.entries()) {
      for (const b of list.slice(i + 1)) {
        this.spend();
        const both = this.solve([a, b], kind);
        if (both.is === "none" && both.relies === NOTHING) continue;
        pairs.push(f.and(a, b));
        overlaps.get(a)?.push(b);
        overlaps.get(b)?.push(a);
      }
    }
    if (!holds) return f.or(f.and(...list.map((part) => f.not(part))), ...pairs);
    return f.or(...list.map((part) => f.and(part, ...(overlaps.get(part) ?? []).map((other) => f.not(other)))));
  }
}

/** INVARIANT: a choice is a disjunction; anything else is taken in where it stands. */
function alternatives(choice: Formula): readonly Formula[] {
  if (choice.op !== "or") throw new TypeError(`a choice must be a disjunction, not ${choice.op}`);
  return choice.list;
}

function smallest(choices: readonly Formula[]): Formula | undefined {
  const size = (choice: Formula): number => alternatives(choice).length;
  return choices.reduce<Formula | undefined>(
    (best, c) => (best === undefined || size(c) < size(best) ? c : best),
    undefined,
  );
}

/** The literals of an atom or of a conjunction of atoms. */
function literalsOf(part: Formula): Literal[] | undefined {
  if (part.op === "atom") return [part];
  if (part.op !== "and" || !part.list.every((inner) => inner.op === "atom")) return undefined;
  return part.list.filter((inner) => inner.op === "atom");
}
