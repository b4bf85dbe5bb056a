import type { Budget } from "../errors.js";

/**
 * Schemas as boolean formulas over atoms. Numbers are split into integers and fractions and booleans into their two
 * values, so that every atom speaks of one kind of value only and its negation needs no case for the others.
 */
export const KIND = {
  null: 1,
  false: 2,
  true: 4,
  integer: 8,
  fraction: 16,
  string: 32,
  array: 64,
  object: 128,
} as const;
export const NUMBER = KIND.integer | KIND.fraction;
export const ANYTHING = 255;

type Atom =
  | { readonly is: "above"; readonly than: number }
  | { readonly is: "atLeast"; readonly than: number }
  | { readonly is: "multiple"; readonly of: number }
  | { readonly is: "oneOfNumbers"; readonly values: readonly number[] }
  | { readonly is: "length"; readonly least: number }
  | { readonly is: "pattern"; readonly source: string }
  | { readonly is: "format"; readonly name: string }
  | { readonly is: "oneOfStrings"; readonly values: readonly string[] }
  | { readonly is: "size"; readonly least: number }
  | { readonly is: "unique" }
  /** Every item at a position in [from, to) satisfies `item`. */
  | { readonly is: "items"; readonly from: number; readonly to: number; readonly item: Formula }
  /** At least `least` items satisfy `item`. */
  | { readonly is: "count"; readonly least: number; readonly item: Formula }
  | { readonly is: "members"; readonly least: number }
  /** Every member whose name satisfies `name` has a value that satisfies `value`. */
  | { readonly is: "values"; readonly name: Formula; readonly value: Formula }
  /** Something about the value that no rule here understands; equal keys mean the same thing. */
  | { readonly is: "opaque"; readonly key: string };

export type Formula = { readonly id: number } & (
  | { readonly op: "kind"; readonly kinds: number }
  | { readonly op: "and" | "or"; readonly list: readonly Formula[] }
  /** Exactly one of the list. */
  | { readonly op: "one"; readonly list: readonly Formula[]; readonly holds: boolean }
  | { readonly op: "ref"; readonly to: number; readonly holds: boolean }
  | { readonly op: "atom"; readonly atom: Atom; readonly holds: boolean }
);

type Shape = Formula extends infer F ? (F extends Formula ? Omit<F, "id"> : never) : never;

const KINDS_OF: Record<Atom["is"], number> = {
  above: NUMBER,
  atLeast: NUMBER,
  multiple: NUMBER,
  oneOfNumbers: NUMBER,
  length: KIND.string,
  pattern: KIND.string,
  format: KIND.string,
  oneOfStrings: KIND.string,
  size: KIND.array,
  unique: KIND.array,
  items: KIND.array,
  count: KIND.array,
  members: KIND.object,
  values: KIND.object,
  opaque: ANYTHING,
};

/** Hash-consed formulas: equal structure is the same object, so a contradiction is found by comparing ids. */
export class Formulas {
  readonly #byKey = new Map<string, Formula>();
  readonly #negations = new Map<number, Formula>();
  readonly #restricted = new Map<number, Formula>();
  readonly #budget: Budget;
  readonly yes: Formula;
  readonly no: Formula;

  constructor(budget: Budget) {
    this.#budget = budget;
    this.yes = this.kind(ANYTHING);
    this.no = this.kind(0);
  }

  #intern(key: string, shape: Shape): Formula {
    let formula = this.#byKey.get(key);
    if (formula === undefined) {
      this.#budget.spend(1 + (key.length >> 8));
      formula = { id: this.#byKey.size, ...shape } as Formula;
      this.#byKey.set(key, formula);
    }
    return formula;
  }

  kind(kinds: number): Formula {
    return this.#intern(`kind ${kinds}`, { op: "kind", kinds });
  }

  /** What a keyword for some kinds of value says: nothing about the others. */
  forKinds(kinds: number, then: Formula): Formula {
    return this.or(this.kind(ANYTHING & ~kinds), then);
  }

  ref(to: number): Formula {
    return this.#ref(to, true);
  }

  #ref(to: number, holds: boolean): Formula {
    return this.#intern(`ref ${to} ${holds}`, { op: "ref", to, holds });
  }

  atom(given: Atom, holds = true): Formula {
    // Names are strings, so what a name formula says of other kinds is dropped and equal rules become the same.
    const atom = given.is === "values" ? { ...given, name: this.restrict(given.name, KIND.string) } : given;
    return this.#trivial(atom, holds) ?? this.#intern(`${holds} ${atomKey(atom)}`, { op: "atom", atom, holds });
  }

  #trivial(atom: Atom, holds: boolean): Formula | undefined {
    const answer = (() => {
      switch (atom.is) {
        case "oneOfNumbers":
        case "oneOfStrings":
          return atom.values.length === 0 ? false : undefined;
        case "length":
        case "size":
        case "members":
          return atom.least <= 0 ? true : undefined;
        case "items":
          return atom.from >= atom.to || atom.item === this.yes ? true : undefined;
        case "count":
          return atom.least <= 0 ? true : atom.item === this.no ? false : undefined;
        case "values":
          return atom.name === this.no || atom.value === this.yes ? true : undefined;
        default:
          return undefined;
      }
    })();
    if (answer === undefined) return undefined;
    return answer === holds ? this.yes : this.no;
  }

  and(...parts: readonly Formula[]): Formula {
    return this.#list("and", parts);
  }

  or(...parts: readonly Formula[]): Formula {
    return this.#list("or", parts);
  }

  #list(op: "and" | "or", parts: readonly Formula[]): Formula {
    const [neutral, absorbing] = op === "and" ? [ANYTHING, 0] : [0, ANYTHING];
    let kinds: number = neutral;
    const flat = new Map<number, Formula>();
    const add = (part: Formula): void => {
      if (part.op === op) for (const inner of part.list) add(inner);
      else if (part.op === "kind") kinds = op === "and" ? kinds & part.kinds : kinds | part.kinds;
      else flat.set(part.id, part);
    };
    for (const part of parts) add(part);
    if (kinds === absorbing) return this.kind(kinds);
    for (const part of flat.values()) {
      const opposite = this.#negations.get(part.id);
      if (opposite !== undefined && flat.has(opposite.id)) return this.kind(absorbing);
    }
    const list = [...flat.values()].toSorted((a, b) => a.id - b.id);
    if (kinds !== neutral) list.unshift(this.kind(kinds));
    if (list.length === 0) return this.kind(neutral);
    if (list.length === 1) return list[0] as Formula;
    return this.#intern(`${op} ${list.map((part) => part.id).join()}`, { op, list });
  }

  one(parts: readonly Formula[], holds = true): Formula {
    const list = parts.filter((part) => part !== this.no);
    const certain = list.filter((part) => part === this.yes).length;
    const plain =
      list.length === 0 || certain > 1
        ? this.no
        : certain === 1
          ? this.and(...list.filter((part) => part !== this.yes).map((part) => this.not(part)))
          : list.length === 1
            ? (list[0] as Formula)
            : undefined;
    if (plain !== undefined) return holds ? plain : this.not(plain);
    const sorted = list.toSorted((a, b) => a.id - b.id);
    return this.#intern(`one ${holds} ${sorted.map((part) => part.id).join()}`, { op: "one", list: sorted, holds });
  }

  not(formula: Formula): Formula {
    let result = this.#negations.get(formula.id);
    if (result === undefined) {
      result = this.#negate(formula);
      this.#negations.set(formula.id, result);
      this.#negations.set(result.id, formula);
    }
    return result;
  }

  #negate(formula: Formula): Formula {
    switch (formula.op) {
      case "kind":
        return this.kind(ANYTHING & ~formula.kinds);
      case "and":
        return this.or(...formula.list.map((part) => this.not(part)));
      case "or":
        return this.and(...formula.list.map((part) => this.not(part)));
      case "one":
        return this.one(formula.list, !formula.holds);
      case "ref":
        return this.#ref(formula.to, !formula.holds);
      case "atom":
        return this.atom(formula.atom, !formula.holds);
    }
  }

  /** The formula as it reads for values of one kind; references stay as they are. */
  restrict(formula: Formula, kind: number): Formula {
    const key = formula.id * 256 + kind;
    let result = this.#restricted.get(key);
    if (result === undefined) {
      result = this.#restrict(formula, kind);
      this.#restricted.set(key, result);
    }
    return result;
  }

  #restrict(formula: Formula, kind: number): Formula {
    switch (formula.op) {
      case "kind":
        return (formula.kinds & kind) !== 0 ? this.yes : this.no;
      case "and":
      case "or":
        return this.#list(
          formula.op,
          formula.list.map((part) => this.restrict(part, kind)),
        );
      case "one":
        return this.one(
          formula.list.map((part) => this.restrict(part, kind)),
          formula.holds,
        );
      case "ref":
        return formula;
      case "atom":
        return (KINDS_OF[formula.atom.is] & kind) !== 0 ? formula : this.no;
    }
  }
}

function atomKey(atom: Atom): string {
  switch (atom.is) {
    case "items":
      return `items ${atom.from} ${atom.to} ${atom.item.id}`;
    case "count":
      return `count ${atom.least} ${atom.item.id}`;
    case "values":
      return `values ${atom.name.id} ${atom.value.id}`;
    default:
      return JSON.stringify(atom);
  }
}

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
