/** The ways of one capability: agents by number, and for each delegation that passes it on the narrowing it adds. */
export interface Ways {
  readonly agents: number;
  readonly roots: readonly number[];
  readonly out: ReadonlyMap<number, readonly NarrowingStep[]>;
}

export interface NarrowingStep {
  readonly to: number;
  /** The number of a narrowing; -1: none. */
  readonly narrowing: number;
}

/** Narrowings, as the bits of a number, that a way collects; not exact: that all ways to some agent have in common. */
export interface Collection {
  readonly narrowings: bigint;
  readonly isExact: boolean;
}

export interface CollectedNarrowings {
  /** The first is the empty one. */
  readonly collections: readonly Collection[];
  /** By agent, the numbers of the collections that arrive there and matter. */
  readonly at: ReadonlyMap<number, readonly number[]>;
  /** Agents where so many arrive that the rest is taken as one, by the number of that one, which is not exact. */
  readonly merged: ReadonlyMap<number, number>;
}

/** Collections that are told apart at one agent: so many for the verdict, and so many more for shorter witnesses. */
const MAX_LEAST = 512;
const MAX_SHORTER = 64;
const MAX_STATES = 200_000;
const MAX_STEPS = 2_000_000;
const MAX_POOL = 2 ** 22;

/**
 * What the ways through a workflow collect, as far as it matters: a way that collects more than another one to the same
 * agent lets less through, and matters only while it is the shorter one. Independent narrowings are thus never
 * combined. Where even that is too much, what all ways have in common stands for the rest: less narrow than any.
 */
export function collectNarrowings(ways: Ways, maxSets: number): CollectedNarrowings {
  const pool = new Pool();
  const kept = new Kept(pool, ways.agents, maxSets);
  const full = leastSets(ways, pool, kept);
  shorterWays(ways, pool, kept);
  const collections: Collection[] = [{ narrowings: 0n, isExact: true }];
  const exact = new Map([[pool.empty, 0]]);
  const numberOf = (set: number): number => {
    let number = exact.get(set);
    if (number === undefined) {
      number = collections.push({ narrowings: pool.bits(set), isExact: true }) - 1;
      exact.set(set, number);
    }
    return number;
  };
  const at = new Map([...kept.all()].map(([agent, sets]) => [agent, sets.map(numberOf)]));
  const merged = new Map<number, number>();
  const inexact = new Map<bigint, number>();
  for (const [agent, common] of beyond(ways, full, (agent) => kept.at(agent).map((set) => pool.bits(set)))) {
    const narrowings = inexact.size < maxSets || inexact.has(common) ? common : 0n;
    let number = inexact.get(narrowings);
    if (number === undefined) {
      number = collections.push({ narrowings, isExact: false }) - 1;
      inexact.set(narrowings, number);
    }
    merged.set(agent, number);
    at.set(agent, [...(at.get(agent) ?? []), number]);
  }
  return { collections, at, merged };
}

/** Sets of narrowings, each with a number. */
class Pool {
  readonly empty = 0;
  readonly #bits: bigint[] = [0n];
  readonly #sizes: number[] = [0];
  readonly #numbers = new Map([[0n, 0]]);

  bits(set: number): bigint {
    return this.#bits[set] as bigint;
  }

  size(set: number): number {
    return this.#sizes[set] as number;
  }

  /** Undefined when there are too many sets already. */
  with(set: number, narrowing: number): number | undefined {
    if (narrowing === -1) return set;
    const before = this.bits(set);
    const bits = before | (1n << BigInt(narrowing));
    if (bits === before) return set;
    const known = this.#numbers.get(bits);
    if (known !== undefined || this.#bits.length >= MAX_POOL) return known;
    this.#sizes.push(this.size(set) + 1);
    this.#numbers.set(bits, this.#bits.length);
    return this.#bits.push(bits) - 1;
  }

  /** Whether one of `sets` has nothing that `set` has not. */
  isCovered(set: number, sets: readonly number[]): boolean {
    const bits = this.bits(set);
    return sets.some((other) => (this.bits(other) & bits) === this.bits(other));
  }
}

/** The sets at each agent, within their bounds. */
class Kept {
  readonly #sets = new Map<number, number[]>();
  readonly #different = new Set<number>();
  readonly #maxSets: number;
  readonly #maxStates: number;
  #states = 0;

  constructor(pool: Pool, agents: number, maxSets: number) {
    this.#different.add(pool.empty);
    this.#maxSets = maxSets;
    this.#maxStates = MAX_STATES + 4 * agents;
  }

  all(): Iterable<[number, readonly number[]]> {
    return this.#sets;
  }

  at(agent: number): readonly number[] {
    return this.#sets.get(agent) ?? [];
  }

  add(agent: number, set: number, most: number): boolean {
    const sets = this.#sets.get(agent) ?? [];
    const isNew = !this.#different.has(set);
    if (sets.length >= most || this.#states >= this.#maxStates) return false;
    if (isNew && this.#different.size >= this.#maxSets) return false;
    this.#different.add(set);
    this.#states++;
    if (sets.push(set) === 1) this.#sets.set(agent, sets);
    return true;
  }
}

/**
 * For each agent the sets than which no smaller one arrives. Small sets go first, and no step makes a set smaller:
 * whatever covers a set was there before it. Answers with the agents where some had to be left out.
 */
function leastSets({ roots, out }: Ways, pool: Pool, kept: Kept): ReadonlySet<number> {
  const full = new Set<number>();
  const seen = new Set<number>();
  const waiting: [agent: number, set: number][][] = [];
  const enter = (agent: number, set: number | undefined): void => {
    if (set === undefined || seen.size >= MAX_STEPS) {
      full.add(agent);
      return;
    }
    const state = agent * MAX_POOL + set;
    if (seen.has(state) || pool.isCovered(set, kept.at(agent))) return;
    seen.add(state);
    (waiting[pool.size(set)] ??= []).push([agent, set]);
  };
  for (const root of roots) enter(root, pool.empty);
  for (let size = 0; size < waiting.length; size++) {
    // Steps that narrow nothing lengthen the list that is being read.
    for (const [agent, set] of waiting[size] ?? []) {
      if (pool.isCovered(set, kept.at(agent))) continue;
      if (!kept.add(agent, set, MAX_LEAST)) full.add(agent);
      else for (const { to, narrowing } of out.get(agent) ?? []) enter(to, pool.with(set, narrowing));
    }
    delete waiting[size];
  }
  return full;
}

/** Sets that are not the least, but arrive by fewer steps than any that covers them. Those past the bound are left out. */
function shorterWays({ roots, out }: Ways, pool: Pool, kept: Kept): void {
  const least = new Map([...kept.all()].map(([agent, sets]) => [agent, new Set(sets)]));
  const arrived = new Map<number, number[]>();
  const open: [agent: number, set: number][] = [];
  const enter = (agent: number, set: number | undefined): void => {
    const sets = arrived.get(agent) ?? [];
    if (set === undefined || pool.isCovered(set, sets)) return;
    if (least.get(agent)?.has(set) !== true && !kept.add(agent, set, (least.get(agent)?.size ?? 0) + MAX_SHORTER))
      return;
    if (sets.push(set) === 1) arrived.set(agent, sets);
    open.push([agent, set]);
  };
  for (const root of roots) enter(root, pool.empty);
  for (const [agent, set] of open) {
    for (const { to, narrowing } of out.get(agent) ?? []) enter(to, pool.with(set, narrowing));
  }
}

/** The agents that something left out may reach, each with the narrowings that all ways to it have in common. */
function* beyond(
  { roots, out }: Ways,
  full: ReadonlySet<number>,
  sets: (agent: number) => readonly bigint[],
): Iterable<[agent: number, common: bigint]> {
  if (full.size === 0) return;
  const common = new Map(roots.map((root) => [root, 0n]));
  const changed = [...roots];
  for (let agent = changed.pop(); agent !== undefined; agent = changed.pop()) {
    const here = common.get(agent) as bigint;
    for (const { to, narrowing } of out.get(agent) ?? []) {
      const arriving = narrowing === -1 ? here : here | (1n << BigInt(narrowing));
      const before = common.get(to);
      const after = before === undefined ? arriving : before & arriving;
      if (after === before) continue;
      common.set(to, after);
      changed.push(to);
    }
  }
  const reached = new Set(full);
  for (const agent of reached) {
    const least = common.get(agent) ?? 0n;
    // Everything that arrives here is covered by something exact: nothing is in doubt from here on.
    if (sets(agent).some((set) => (set & least) === set)) continue;
    yield [agent, least];
    for (const { to } of out.get(agent) ?? []) reached.add(to);
  }
}
