import { type InclusionOutcome, type Literal, none, some, unknown } from "./formula.js";

const MAX_TRIED = 2_000;

interface Range {
  low: number;
  lowOpen: boolean;
  high: number;
  highOpen: boolean;
  readonly among: Set<number> | undefined;
  readonly except: ReadonlySet<number>;
  readonly multiples: readonly number[];
  readonly nonMultiples: readonly number[];
  readonly opaque: boolean;
}

function gather(literals: readonly Literal[]): Range {
  let among: Set<number> | undefined;
  const except = new Set<number>();
  const multiples: number[] = [];
  const nonMultiples: number[] = [];
  let opaque = false;
  const range = { low: -Infinity, lowOpen: false, high: Infinity, highOpen: false };
  const raise = (than: number, open: boolean): void => {
    if (than > range.low || (than === range.low && open)) Object.assign(range, { low: than, lowOpen: open });
  };
  const lower = (than: number, open: boolean): void => {
    if (than < range.high || (than === range.high && open)) Object.assign(range, { high: than, highOpen: open });
  };
  for (const { atom, holds } of literals) {
    if (atom.is === "above" && holds) raise(atom.than, true);
    else if (atom.is === "above") lower(atom.than, false);
    else if (atom.is === "atLeast" && holds) raise(atom.than, false);
    else if (atom.is === "atLeast") lower(atom.than, true);
    else if (atom.is === "multiple") (holds ? multiples : nonMultiples).push(atom.of);
    else if (atom.is === "oneOfNumbers" && !holds) for (const value of atom.values) except.add(value);
    else if (atom.is === "oneOfNumbers")
      among = new Set(atom.values.filter((v) => among === undefined || among.has(v)));
    else opaque = true;
  }
  return { ...range, among, except, multiples, nonMultiples, opaque };
}

/** Validators divide in binary floating point; so do we, where a value is at hand. */
function isMultiple(value: number, of: number): boolean {
  return Number.isInteger(value / of);
}

/** Whether every multiple of `left` is one of `right`, even in floating point: exact for integers and doublings. */
function divides(left: number, right: number): boolean {
  if (Number.isInteger(left) && Number.isInteger(right)) return left % right === 0;
  return left >= right && Number.isInteger(Math.log2(left / right)) && (left / right) * right === left;
}

function fits(range: Range, value: number): boolean {
  return (
    (value > range.low || (value === range.low && !range.lowOpen)) &&
    (value < range.high || (value === range.high && !range.highOpen)) &&
    !range.except.has(value) &&
    range.multiples.every((of) => isMultiple(value, of)) &&
    !range.nonMultiples.some((of) => isMultiple(value, of))
  );
}

export function solveNumber(literals: readonly Literal[], integer: boolean): InclusionOutcome {
  const range = gather(literals);
  const finish = (candidates: Iterable<number>, complete: boolean): InclusionOutcome => {
    for (const value of candidates) {
      if (Number.isInteger(value) === integer && Number.isFinite(value) && fits(range, value)) {
        return some(value, !range.opaque);
      }
    }
    return complete ? none : unknown;
  };
  if (range.low > range.high || (range.low === range.high && (range.lowOpen || range.highOpen))) return none;
  if (range.among !== undefined) return finish(range.among, true);
  if (range.low === range.high) return finish([range.low], true);
  if (range.nonMultiples.some((no) => range.multiples.some((yes) => divides(yes, no)))) return none;
  return integer ? solveInteger(range, finish) : solveFraction(range, finish);
}

type Finish = (candidates: Iterable<number>, complete: boolean) => InclusionOutcome;

function solveInteger(range: Range, finish: Finish): InclusionOutcome {
  // Every integer is a multiple of 1, hence of 1/2, 1/4, …, exactly so even in floating point.
  const step = range.multiples.filter(Number.isInteger).reduce(leastCommonMultiple, 1);
  if (!Number.isSafeInteger(step)) return finish([0, step], false);
  if (range.nonMultiples.some((no) => divides(1, no) || divides(step, no))) return none;
  const first = range.lowOpen ? Math.floor(range.low) + 1 : Math.ceil(range.low);
  const last = range.highOpen ? Math.ceil(range.high) - 1 : Math.floor(range.high);
  const from = Math.ceil(first / step);
  const to = Math.floor(last / step);
  if (from > to) return none;
  const exact = range.multiples.every(Number.isInteger) && range.nonMultiples.every(Number.isInteger);
  const complete = exact && to - from <= MAX_TRIED && Number.isSafeInteger(first) && Number.isSafeInteger(last);
  return finish(multiplesOf(step, from, to, MAX_TRIED + range.except.size), complete);
}

function* multiplesOf(step: number, from: number, to: number, most: number): Iterable<number> {
  // Near zero first, so that the number found is one a person would have chosen.
  const start = Math.min(Math.max(0, from), to);
  for (let tried = 0; tried <= most; tried++) {
    if (start + tried <= to) yield (start + tried) * step;
    if (tried > 0 && start - tried >= from) yield (start - tried) * step;
  }
}

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

function solveFraction(range: Range, finish: Finish): InclusionOutcome {
  if (range.multiples.some(Number.isInteger)) return none;
  return finish(fractions(range), false);
}

function* fractions({ low, high, multiples }: Range): Iterable<number> {
  const [from, to] = [Math.max(low, -1e15), Math.min(high, 1e15)];
  for (const of of multiples) {
    const first = Math.max(Math.ceil(from / of), Math.min(0, Math.floor(to / of)));
    for (let k = first; k < first + 64; k++) yield Number((k * of).toPrecision(12));
  }
  const anchor = Math.min(Math.max(0, from), to);
  for (const base of [Math.floor(anchor), from, to, (from + to) / 2]) {
    for (const offset of [0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.1]) yield base + offset;
  }
  for (let cut = 3; cut < 40; cut++) yield from + (to - from) / cut;
}
