// A pattern ready to use: native while its worst case is known to be small, for longer texts in a worker.

import type { AST } from "@eslint-community/regexpp";
import { flagsFor } from "../documents/index.js";
import { type ParsedPattern, parsePattern, patternLibraries } from "./parse.js";
import { type Effort, type Paths, pathsOf, Unproved } from "./paths.js";

const MAX_PATTERN_LENGTH = 4_096;
const MAX_PROPERTIES = 20;
const MAX_EFFORT_EACH = 400_000;
/** Reading a character of a pattern, beside what is done with it later. */
const PARSE_EFFORT = 10;

export interface Matcher {
  readonly source: string;
  readonly flags: string;
  /** Texts up to this length may be tested here and now; −1 when none may. */
  readonly safeLength: number;
  /** INVARIANT: only called with texts of at most `safeLength`. */
  test(text: string): boolean;
}

type MatcherOutcome = { ok: true; matcher: Matcher } | { ok: false; reason: string };

/** The same few patterns (a uuid, a date) stand in thousands of tools; what was proved about one is kept. */
const proved = new Map<string, MatcherOutcome>();
const MAX_PROVED = 2_000;

export function createMatcher(source: string, effort: Effort, flags?: string): MatcherOutcome {
  const key = `${flags ?? ""}/${source}`;
  const known = proved.get(key);
  if (known !== undefined) return known;
  const given = Math.max(0, Math.min(MAX_EFFORT_EACH, effort.left));
  const outcome = prove(source, given, effort, flags);
  // An answer that was cut short by someone else's spending is not kept: the next document deserves its own look.
  if (given === MAX_EFFORT_EACH) {
    if (proved.size >= MAX_PROVED) proved.delete(proved.keys().next().value as string);
    proved.set(key, outcome);
  }
  return outcome;
}

function prove(source: string, given: number, effort: Effort, wanted: string | undefined): MatcherOutcome {
  if (source.length > MAX_PATTERN_LENGTH) {
    return { ok: false, reason: `is ${source.length} characters long; the limit is ${MAX_PATTERN_LENGTH}` };
  }
  // The engine looks up every one of them in the Unicode tables as soon as it reads the pattern.
  if (source.split(/\\p\{/i, MAX_PROPERTIES + 2).length > MAX_PROPERTIES + 1) {
    return { ok: false, reason: `has more than ${MAX_PROPERTIES} Unicode properties` };
  }
  const flags = wanted ?? flagsFor(source);
  if (flags === undefined) return { ok: false, reason: "is not a valid regular expression" };
  const own = { left: given - source.length * PARSE_EFFORT };
  const pattern = own.left > 0 ? parsePattern(source, flags) : undefined;
  const safe = pattern === undefined ? -1 : safeLength(pattern, own);
  effort.left -= given - Math.max(own.left, 0);
  const regexp = new RegExp(source, flags);
  return { ok: true, matcher: { source, flags, safeLength: safe, test: (text) => regexp.test(text) } };
}

/** Steps that native matching may take at worst: some tens of milliseconds. */
const MAX_NATIVE_STEPS = 5_000_000;
const MAX_VECTORS = 4_000;
const MAX_CLASSES = 128;

/**
 * `safeLength` returns the length of the longest text that is surely matched within so many steps; −1 when not even the
 * empty one is. The engine's work on a text is the number of paths alive after each character, summed up. Reading classes
 * of characters instead of characters, the worst vectors of path counts are followed; a vector that another one dominates
 * in every position cannot become worse. When no worse vector appears any more, the work per character has a bound for
 * texts of any length. Otherwise the bound is known for the lengths looked at, and longer texts do not run here.
 */
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
