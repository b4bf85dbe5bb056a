// How long may a text be before matching it natively could take too many steps? The engine's work on a text is the
// number of paths alive after each character, summed up. Reading classes of characters instead of characters, we
// follow the worst vectors of path counts; a vector that another one dominates in every position cannot become
// worse. When no worse vector appears any more, the work per character has a bound for texts of any length.
// Otherwise the bound is known for the lengths looked at, and longer texts do not run here.

import type { AST } from "@eslint-community/regexpp";
import { patternLibraries } from "./libraries.js";
import type { ParsedPattern } from "./parse.js";
import { type Effort, type Paths, pathsOf, Unproved } from "./paths.js";

/** Steps that native matching may take at worst: some tens of milliseconds. */
const MAX_NATIVE_STEPS = 5_000_000;
const MAX_VECTORS = 4_000;
const MAX_CLASSES = 128;

/** The longest text that is surely matched within so many steps; −1 when not even the empty one is. */
export function safeLength(pattern: ParsedPattern, effort: Effort, maxSteps = MAX_NATIVE_STEPS): number {
  const { alternatives } = pattern.tree;
  const anchored = !pattern.flags.includes("m") && alternatives.every(startsAnchored);
  // Asked once, at the very start of the text, a lookahead is a pattern of its own.
  const leading = anchored ? alternatives.flatMap(leadingLookaheads) : [];
  const surchargeOf = (node: AST.LookaheadAssertion): number => {
    if (leading.includes(node)) return 0;
    const paths = pathsOf(node.alternatives, pattern.flags, effort, surchargeOf);
    if (paths.endless) throw new Unproved();
    const { worst } = growth(paths, true, maxSteps, effort);
    return (worst.at(-1) as number) * (paths.characters.length + 1);
  };
  try {
    const share = maxSteps / (leading.length + 1);
    const safe = (part: readonly AST.Alternative[], fixed: boolean) =>
      lengthWithin(growth(pathsOf(part, pattern.flags, effort, surchargeOf), fixed, share, effort), share);
    return Math.min(safe(alternatives, anchored), ...leading.map((node) => safe(node.alternatives, true)));
  } catch (error) {
    // A RangeError is a tree too deep to walk: nothing is claimed about it either.
    if (error instanceof Unproved || error instanceof RangeError) return -1;
    throw error;
  }
}

function startsAnchored(alternative: AST.Alternative): boolean {
  const first = alternative.elements[0];
  return first?.type === "Assertion" && first.kind === "start";
}

function leadingLookaheads(alternative: AST.Alternative): AST.LookaheadAssertion[] {
  const found: AST.LookaheadAssertion[] = [];
  for (const element of alternative.elements) {
    if (element.type !== "Assertion") break;
    if (element.kind === "lookahead") found.push(element);
  }
  return found;
}

interface Growth {
  /** `worst[n]`: steps at the nth character of any text, never falling. */
  readonly worst: readonly number[];
  /** The last entry of `worst` holds for every character after it. */
  readonly closed: boolean;
}

/** Position → paths alive there. */
type Vector = Map<number, number>;

function growth(paths: Paths, anchored: boolean, maxSteps: number, effort: Effort): Growth {
  const { characters } = paths;
  const distinct = [...new Set(characters)];
  if (distinct.length > MAX_CLASSES) throw new Unproved();
  const base = new (patternLibraries().refa.CharBase)(distinct);
  if (base.sets.length > MAX_CLASSES) throw new Unproved();
  const split = new Map(distinct.map((set) => [set, base.split(set)]));
  const classes = characters.map((set) => split.get(set) as number[]);
  const start = characters.length;
  const follow = [...paths.follow, paths.first];
  const price = [...follow.keys()].map((position) => {
    const finish = position === start ? paths.empty : (paths.last.get(position) ?? 0);
    return (sum((follow[position] as Vector).values()) + finish + 1) * (1 + paths.surcharge);
  });

  const known = new Antichain(effort);
  let frontier: Vector[] = [new Map([[start, 1]])];
  const worst: number[] = [];
  let total = 0;
  for (;;) {
    const cost = Math.max(worst.at(-1) ?? 0, ...frontier.map((vector) => costOf(vector, price)));
    worst.push(cost);
    total += cost;
    if (total > maxSteps) return { worst, closed: false };
    const next: Vector[] = [];
    for (const vector of frontier) {
      for (const reached of step(vector)) {
        if (known.add(reached)) next.push(reached);
        if (effort.left <= 0 || known.size > MAX_VECTORS) return { worst, closed: false };
      }
    }
    frontier = next.filter((vector) => known.has(vector));
    if (frontier.length === 0) return { worst, closed: true };
  }

  /** One vector for each class of characters that can be read next. */
  function step(vector: Vector): Iterable<Vector> {
    const reached = new Map<number, Vector>();
    for (const [position, alive] of vector) {
      for (const [to, ways] of follow[position] as Vector) {
        for (const read of classes[to] as number[]) {
          effort.left--;
          let target = reached.get(read);
          if (target === undefined) {
            target = anchored ? new Map() : new Map([[start, 1]]);
            reached.set(read, target);
          }
          target.set(to, (target.get(to) ?? 0) + alive * ways);
        }
      }
      if (effort.left <= 0) break;
    }
    return reached.values();
  }
}

function lengthWithin({ worst, closed }: Growth, steps: number): number {
  let total = 0;
  for (const [length, cost] of worst.entries()) {
    total += cost;
    if (total > steps) return length - 1;
  }
  if (!closed) return worst.length - 1;
  return worst.length - 1 + Math.floor((steps - total) / (worst.at(-1) as number));
}

/** The worst vectors seen, none of which dominates another; found again by the positions they stand on. */
class Antichain {
  readonly #all = new Set<Vector>();
  readonly #at = new Map<number, Set<Vector>>();
  readonly #effort: Effort;
  constructor(effort: Effort) {
    this.#effort = effort;
  }
  get size(): number {
    return this.#all.size;
  }
  has(vector: Vector): boolean {
    return this.#all.has(vector);
  }

  /** False when a vector that is at least as bad is known already. */
  add(vector: Vector): boolean {
    const groups = [...vector.keys()].map((position) => this.#at.get(position)).filter((group) => group !== undefined);
    if (groups.length === vector.size) {
      const rarest = groups.reduce((a, b) => (a.size <= b.size ? a : b));
      for (const known of rarest) if (this.#dominates(known, vector)) return false;
    }
    for (const group of groups) {
      for (const known of group) if (this.#dominates(vector, known)) this.#remove(known);
    }
    this.#all.add(vector);
    for (const position of vector.keys()) {
      const group = this.#at.get(position);
      if (group === undefined) this.#at.set(position, new Set([vector]));
      else group.add(vector);
    }
    return true;
  }

  #remove(vector: Vector): void {
    this.#all.delete(vector);
    for (const position of vector.keys()) this.#at.get(position)?.delete(vector);
  }

  #dominates(greater: Vector, lesser: Vector): boolean {
    this.#effort.left--;
    if (greater.size < lesser.size) return false;
    for (const [position, alive] of lesser) {
      this.#effort.left--;
      if ((greater.get(position) ?? 0) < alive) return false;
    }
    return true;
  }
}

function costOf(vector: Vector, price: readonly number[]): number {
  let cost = 1;
  for (const [position, alive] of vector) cost += alive * (price[position] as number);
  return cost;
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
