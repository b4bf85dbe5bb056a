// A pattern as the positions a backtracking engine can stand on, and in how many ways it gets from one to the next.
// Ways are counted, not merged: `(a|a)*` and `(a*)*` read the same text as `a*`, but every step of theirs can be
// taken twice, and that doubling is what makes an engine explode.

import type { AST } from "@eslint-community/regexpp";
import type { CharSet } from "refa";
import { characterSet, isSingleCharacter } from "./parse.js";

/** Thrown when nothing is claimed about a pattern: it then never runs where it could stall the process. */
export class Unproved extends Error {}

/** Position → number of ways. */
type Ways = Map<number, number>;

export interface Paths {
  /** The characters read when a position is entered. */
  readonly characters: readonly CharSet[];
  /** For each position, the ways on to the next ones. */
  readonly follow: readonly Ways[];
  readonly first: Ways;
  /** Ways to finish from a position. */
  readonly last: Ways;
  /** Ways to match nothing. */
  readonly empty: number;
  /** Extra work at every step for lookaheads of bounded length. */
  readonly surcharge: number;
  /** Has it a repetition without an upper bound? */
  readonly endless: boolean;
}

interface Part {
  first: Ways;
  last: Ways;
  empty: number;
}

/** What may still be spent on looking at patterns; past it the answer is what has been proved so far. */
export interface Effort {
  left: number;
}

const MAX_POSITIONS = 1_500;
const MAX_EDGES = 100_000;
const RANGE_EFFORT = 4;
/** Counts beyond this are all the same: far too many. */
const MANY = 1e12;

export function pathsOf(
  alternatives: readonly AST.Alternative[],
  flags: string,
  effort: Effort,
  surchargeOf: Surcharge,
): Paths {
  const builder = new Builder(flags, effort, surchargeOf);
  const part = builder.alternatives(alternatives);
  const { characters, follow, surcharge, endless } = builder;
  return { ...part, characters, follow, surcharge, endless };
}

/** Work that one visit of a lookahead costs; throws `Unproved` when it has no bound. */
type Surcharge = (lookahead: AST.LookaheadAssertion) => number;

class Builder {
  readonly characters: CharSet[] = [];
  readonly follow: Ways[] = [];
  surcharge = 0;
  endless = false;
  readonly #flags: string;
  readonly #effort: Effort;
  readonly #surchargeOf: Surcharge;
  readonly #sets = new Map<string, CharSet | undefined>();
  #edges = 0;

  constructor(flags: string, effort: Effort, surchargeOf: Surcharge) {
    this.#flags = flags;
    this.#effort = effort;
    this.#surchargeOf = surchargeOf;
  }

  alternatives(alternatives: readonly AST.Alternative[]): Part {
    const sum: Part = { first: new Map(), last: new Map(), empty: 0 };
    for (const alternative of alternatives) {
      let part = nothing();
      for (const element of alternative.elements) part = this.#then(part, this.#element(element));
      add(sum.first, part.first, 1);
      add(sum.last, part.last, 1);
      sum.empty = bounded(sum.empty + part.empty);
    }
    return sum;
  }

  #element(node: AST.Element): Part {
    this.#spend(1);
    if (isSingleCharacter(node)) return this.#character(node);
    switch (node.type) {
      case "Group":
        if (node.modifiers !== null) throw new Unproved();
        return this.alternatives(node.alternatives);
      case "CapturingGroup":
        return this.alternatives(node.alternatives);
      case "Quantifier":
        return this.#quantifier(node);
      case "Assertion":
        if (node.kind === "lookbehind") throw new Unproved();
        if (node.kind === "lookahead") this.surcharge = bounded(this.surcharge + this.#surchargeOf(node));
        // An assertion reads nothing and can only end a path, so passing it freely errs on the safe side.
        return nothing();
      default:
        throw new Unproved();
    }
  }

  #character(node: Parameters<typeof characterSet>[0]): Part {
    if (!this.#sets.has(node.raw)) this.#sets.set(node.raw, characterSet(node, this.#flags));
    const set = this.#sets.get(node.raw);
    if (set === undefined || this.characters.length >= MAX_POSITIONS) throw new Unproved();
    // The engine translates every range of every position too, when it first runs.
    this.#spend(1 + RANGE_EFFORT * set.ranges.length);
    const position = this.characters.length;
    this.characters.push(set);
    this.follow.push(new Map());
    return { first: new Map([[position, 1]]), last: new Map([[position, 1]]), empty: 0 };
  }

  /** Counted repetition is written out, because each round is a different place to come back to. */
  #quantifier(node: AST.Quantifier): Part {
    const { min, max, element } = node;
    if (max === 0) return nothing();
    if (min > MAX_POSITIONS || (max !== Number.POSITIVE_INFINITY && max > MAX_POSITIONS)) throw new Unproved();
    if (max === Number.POSITIVE_INFINITY) {
      this.endless = true;
      let part = nothing();
      for (let i = 1; i < min; i++) part = this.#then(part, this.#element(element));
      const loop = this.#element(element);
      this.#connect(loop.last, loop.first);
      if (min === 0) return optional(loop);
      // A required round may match nothing, and then another one may still read.
      if (loop.empty > 0) add(loop.first, new Map(loop.first), loop.empty);
      return this.#then(part, loop);
    }
    let rest = nothing();
    for (let i = min; i < max; i++) rest = optional(this.#then(this.#element(element), rest));
    let part = nothing();
    for (let i = 0; i < min; i++) part = this.#then(part, this.#element(element));
    return this.#then(part, rest);
  }

  #then(a: Part, b: Part): Part {
    this.#connect(a.last, b.first);
    if (a.empty === 1 && a.first.size === 0) return b;
    const first = a.first;
    if (a.empty > 0) add(first, b.first, a.empty);
    const last = b.last;
    if (b.empty > 0) add(last, a.last, b.empty);
    return { first, last, empty: bounded(a.empty * b.empty) };
  }

  #spend(effort: number): void {
    this.#effort.left -= effort;
    if (this.#effort.left < 0) throw new Unproved();
  }

  #connect(from: Ways, to: Ways): void {
    this.#edges += from.size * to.size;
    if (this.#edges > MAX_EDGES) throw new Unproved();
    this.#spend(from.size * to.size);
    for (const [position, ways] of from) add(this.follow[position] as Ways, to, ways);
  }
}

function nothing(): Part {
  return { first: new Map(), last: new Map(), empty: 1 };
}

/** An empty round is tried and given up, so it counts as one more way through. */
function optional(part: Part): Part {
  return { ...part, empty: bounded(part.empty + 1) };
}

function add(into: Ways, from: Ways, factor: number): void {
  for (const [position, ways] of from) into.set(position, bounded((into.get(position) ?? 0) + ways * factor));
}

function bounded(count: number): number {
  return Math.min(count, MANY);
}
