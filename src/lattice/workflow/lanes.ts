import { type Inclusion, type InclusionOptions, includesType } from "../inclusion/includes.js";
import { NO_VALUE, typeKey, type ValueType } from "../inclusion/type.js";
import { clearBit, eachLane, PASS, setBit, type Transfer } from "./graph.js";
import type { Delegation, Workflow } from "./model.js";
import {
  type CollectedNarrowings,
  type Collection,
  collectNarrowings,
  type NarrowingStep,
  type Ways,
} from "./narrowings.js";
import type { Reach } from "./reach.js";

/** A capability as it arrives after some of the narrowings of its arguments, whatever the order. */
export interface Lane {
  readonly capability: string;
  readonly type: ValueType;
  /** As the bits of a number. */
  readonly narrowings: bigint;
  /** False when it stands for ways that are not told apart, each of which lets this much through or less. */
  readonly isExact: boolean;
}

/** The lanes of one capability: one for each set of narrowings. */
interface Bundle {
  readonly first: number;
  readonly lanes: readonly number[];
  readonly bitOf: ReadonlyMap<string, number>;
  readonly laneOf: ReadonlyMap<bigint, number>;
  /** Where only sets that some way collects have a lane. Any other change than a look needs new lanes. */
  readonly open?: CollectedNarrowings;
}

/** Up to this many narrowings of one capability every set of them has a lane, so that any change finds its lanes. */
const MAX_CLOSED = 6;
/** Bits for all agents and lanes together; each capability has a few lanes in any case. */
const MAX_BITS = 2 ** 29;
const MIN_SETS = 64;

const NOT_TOLD_APART = "so many ways narrow these arguments differently that they are not all told apart";

/**
 * One lane for each capability and each set of narrowings that a way through the workflow can collect. Narrowing is
 * then nothing but moving from lane to lane, and the analysis of names and of arguments is one search.
 */
export class Lanes {
  readonly list: readonly Lane[];
  readonly words: number;
  /** Capabilities of which some agent has a lane that is not exact: its scope is taken for larger than it may be. */
  readonly simplified: readonly string[];
  readonly #bundles = new Map<string, Bundle>();
  readonly #open: (readonly [capability: string, bundle: Bundle, collected: CollectedNarrowings])[] = [];
  readonly #options: InclusionOptions;
  readonly #answers = new Map<string, Inclusion>();
  /** Many delegations narrow alike. */
  readonly #transfers = new Map<string, Transfer>();
  readonly #typeNumbers = new Map<string, number>();
  readonly #keys: string[] = [];
  readonly #numberOf = new WeakMap<ValueType, number>();

  constructor(workflow: Workflow, options: InclusionOptions) {
    this.#options = options;
    const list: Lane[] = [];
    const narrowings = this.#narrowings(workflow);
    for (const [name, { arguments: type }] of workflow.capabilities) {
      const all = [...(narrowings.get(name) ?? [])];
      const bitOf = new Map(all.map(([key], bit) => [key, bit]));
      const open =
        all.length <= MAX_CLOSED
          ? undefined
          : collectNarrowings(
              waysOf(workflow, name, (narrowing) => bitOf.get(this.#keyOf(narrowing)) ?? -1),
              Math.max(MIN_SETS, Math.floor(MAX_BITS / workflow.agents.length) - list.length),
            );
      const collections =
        open?.collections ??
        Array.from({ length: 2 ** all.length }, (_, set) => ({ narrowings: BigInt(set), isExact: true }));
      const first = list.length;
      const laneOf = new Map<bigint, number>();
      for (const { narrowings: set, isExact } of collections) {
        const parts = all.filter((_, bit) => ((set >> BigInt(bit)) & 1n) === 1n).map(([, narrowing]) => narrowing);
        const narrowed: ValueType = parts.length === 0 ? type : { is: "all", of: [type, ...parts] };
        const lane = list.push({ capability: name, type: narrowed, narrowings: set, isExact }) - 1;
        if (isExact) laneOf.set(set, lane);
      }
      const lanes = collections.map((_, i) => first + i);
      const bundle: Bundle = { first, lanes, bitOf, laneOf, ...(open === undefined ? {} : { open }) };
      this.#bundles.set(name, bundle);
      if (open !== undefined) this.#open.push([name, bundle, open]);
    }
    this.list = list;
    this.simplified = this.#open.filter(([, , { merged }]) => merged.size > 0).map(([name]) => name);
    this.words = Math.max(1, Math.ceil(list.length / 32));
  }

  /** Every narrowing of every capability that takes something away, by how it is written. */
  #narrowings({ capabilities, delegations }: Workflow): Map<string, Map<string, ValueType>> {
    const found = new Map<string, Map<string, ValueType>>();
    const idle = new Set<string>();
    for (const delegation of delegations) {
      for (const [capability, type] of delegation.arguments ?? []) {
        const key = this.#keyOf(type);
        const types = found.get(capability) ?? new Map<string, ValueType>();
        if (types.has(key) || idle.has(`${capability} ${key}`)) continue;
        const whole = capabilities.get(capability)?.arguments;
        if (whole === undefined || this.#includes(whole, type).answer === "yes") idle.add(`${capability} ${key}`);
        else found.set(capability, types.set(key, type));
      }
    }
    return found;
  }

  /** The lane of a capability with its arguments as the server takes them. */
  whole(capability: string): number {
    return this.#bundles.get(capability)?.first ?? -1;
  }

  /** All lanes of a capability. */
  of(capability: string): readonly number[] {
    return this.#bundles.get(capability)?.lanes ?? [];
  }

  /** The lanes by which a capability can be at an agent that is offered it. */
  at(agent: number, capability: string): readonly number[] {
    const bundle = this.#bundles.get(capability);
    if (bundle?.open === undefined) return bundle?.lanes ?? [];
    return (bundle.open.at.get(agent) ?? []).map((number) => bundle.first + number);
  }

  bits(lanes: Iterable<number>): Uint32Array {
    const bits = new Uint32Array(this.words);
    for (const lane of lanes) setBit(bits, 0, lane);
    return bits;
  }

  /** Whether the lanes themselves may be others when this delegation comes or goes. */
  dependOn({ only }: Delegation): boolean {
    return this.#open.some(([capability]) => only === undefined || only.includes(capability));
  }

  /** What a delegation lets through; undefined when it narrows by arguments for which there are no lanes yet. */
  transfer(delegation: Delegation, from: number, to: number): Transfer | undefined {
    const { only, arguments: narrowed } = delegation;
    // Where each lane leads on this delegation is settled for this delegation alone.
    const own = this.#open.filter(
      ([capability, { bitOf }, { merged }]) =>
        (only === undefined || only.includes(capability)) &&
        (merged.has(to) || bitOf.has(this.#keyOf(narrowed?.get(capability)))),
    );
    if (only === undefined && own.length === 0 && (narrowed === undefined || narrowed.size === 0)) return PASS;
    const types = [...(narrowed ?? [])].map(([capability, type]) => [capability, this.#typeNumber(type)]);
    const key = JSON.stringify([only, types, own.map(([capability]) => capability)]);
    let shared = this.#transfers.get(key);
    if (shared === undefined) {
      shared = this.#shared(delegation, new Set(own.map(([capability]) => capability)));
      if (shared === undefined) return undefined;
      this.#transfers.set(key, shared);
    }
    if (own.length === 0) return shared;
    const moves = own.flatMap(([capability, bundle]) =>
      this.#ownMoves(bundle, bundle.bitOf.get(this.#keyOf(narrowed?.get(capability))), from, to),
    );
    return { mask: shared.mask, moves: [...shared.moves, ...moves] };
  }

  /** What any delegation that is written like this one lets through, apart from some capabilities. */
  #shared({ only, arguments: narrowed }: Delegation, apart: ReadonlySet<string>): Transfer | undefined {
    const mask = new Uint32Array(this.words).fill(only === undefined ? 0xffffffff : 0);
    for (const capability of only ?? []) for (const lane of this.of(capability)) setBit(mask, 0, lane);
    for (const capability of apart) for (const lane of this.of(capability)) clearBit(mask, 0, lane);
    const moves: [number, number][] = [];
    for (const [capability, type] of narrowed ?? []) {
      const bundle = this.#bundles.get(capability);
      if (bundle === undefined || apart.has(capability) || (only !== undefined && !only.includes(capability))) continue;
      const bit = bundle.bitOf.get(this.#keyOf(type));
      if (bit === undefined) {
        if (this.within(bundle.first, type).answer === "yes") continue;
        return undefined;
      }
      for (const [set, lane] of bundle.laneOf) {
        const narrower = set | (1n << BigInt(bit));
        if (narrower === set) continue;
        clearBit(mask, 0, lane);
        moves.push([lane, bundle.laneOf.get(narrower) as number]);
      }
    }
    return { mask, moves };
  }

  /** Each lane of an open capability leads to its own at the other end, or to that for the rest, or is covered there. */
  #ownMoves(bundle: Bundle, bit: number | undefined, from: number, to: number): [number, number][] {
    const { open, first, laneOf } = bundle;
    if (open === undefined) return [];
    const there = new Set(open.at.get(to));
    const rest = open.merged.get(to);
    const moves: [number, number][] = [];
    for (const number of open.at.get(from) ?? []) {
      const { narrowings, isExact } = open.collections[number] as Collection;
      const lane = isExact ? laneOf.get(bit === undefined ? narrowings : narrowings | (1n << BigInt(bit))) : undefined;
      const next = lane !== undefined && there.has(lane - first) ? lane - first : rest;
      if (next !== undefined) moves.push([first + number, first + next]);
    }
    return moves;
  }

  /** Whether all arguments of a lane are among `allowed`. What is not exact shows no argument that is not. */
  within(lane: number, allowed: ValueType): Inclusion {
    const { type, isExact } = this.list[lane] as Lane;
    const inclusion = this.#includes(type, allowed);
    return isExact || inclusion.answer === "yes" ? inclusion : { answer: "unknown", why: NOT_TOLD_APART };
  }

  /** Whether no arguments at all are left: the capability is then unusable. */
  isDead(lane: number): boolean {
    return this.within(lane, NO_VALUE).answer === "yes";
  }

  /** Remembered, because agents share servers and allow lists. */
  #includes(left: ValueType, right: ValueType): Inclusion {
    const key = `${this.#typeNumber(left)} ${this.#typeNumber(right)}`;
    let answer = this.#answers.get(key);
    if (answer === undefined) {
      answer = includesType(left, right, this.#options);
      this.#answers.set(key, answer);
    }
    return answer;
  }

  #keyOf(type: ValueType | undefined): string {
    if (type === undefined) return "";
    return this.#keys[this.#typeNumber(type)] as string;
  }

  #typeNumber(type: ValueType): number {
    let number = this.#numberOf.get(type);
    if (number === undefined) {
      const key = typeKey(type);
      number = this.#typeNumbers.get(key) ?? this.#typeNumbers.size;
      this.#typeNumbers.set(key, number);
      this.#keys[number] = key;
      this.#numberOf.set(type, number);
    }
    return number;
  }
}

/** The delegations that pass a capability on, between agents that are offered it. */
function waysOf({ agents, delegations }: Workflow, capability: string, narrowingOf: (type: ValueType) => number): Ways {
  const numbers = new Map<string, number>();
  const roots: number[] = [];
  for (const [number, { name, holds, isRoot }] of agents.entries()) {
    if (!holds.includes(capability)) continue;
    numbers.set(name, number);
    if (isRoot) roots.push(number);
  }
  const out = new Map<number, NarrowingStep[]>();
  for (const { from, to, only, arguments: narrowed } of delegations) {
    const [source, target] = [numbers.get(from), numbers.get(to)];
    if (source === undefined || target === undefined || (only !== undefined && !only.includes(capability))) continue;
    const type = narrowed?.get(capability);
    const steps = out.get(source) ?? [];
    if (steps.push({ to: target, narrowing: type === undefined ? -1 : narrowingOf(type) }) === 1)
      out.set(source, steps);
  }
  return { agents: agents.length, roots, out };
}

export interface NearestFound {
  readonly lane: number;
  readonly distance: number;
  readonly inclusion: Exclude<Inclusion, { readonly answer: "yes" }>;
}

/**
 * Of some lanes of one capability at a node, one with arguments beyond `allowed` that came the shortest way; undefined
 * when there is none. A proof by a longer way is worth more than a doubt by a shorter one. Few lanes are looked at: what
 * carries more narrowings than a lane that lies within lies within, too.
 */
export function nearestBeyond(
  lanes: Lanes,
  reach: Reach,
  node: number,
  some: readonly number[],
  allowed: ValueType,
): NearestFound | undefined {
  const [only] = some;
  if (some.length === 1 && only !== undefined) {
    const inclusion = lanes.within(only, allowed);
    return inclusion.answer === "yes" ? undefined : { lane: only, distance: reach.distance(node, only), inclusion };
  }
  const within: bigint[] = [];
  const isWithin = (lane: number): boolean => {
    const { narrowings } = lanes.list[lane] as Lane;
    if (within.some((fewer) => (fewer & narrowings) === fewer)) return true;
    if (lanes.within(lane, allowed).answer !== "yes") return false;
    within.push(narrowings);
    return true;
  };
  if (widest(lanes, some).every(isWithin)) return undefined;
  const byDistance = some
    .map((lane) => ({ lane, distance: reach.distance(node, lane) }))
    .toSorted((a, b) => a.distance - b.distance);
  let doubt: NearestFound | undefined;
  for (const { lane, distance } of byDistance) {
    if (isWithin(lane)) continue;
    const inclusion = lanes.within(lane, allowed);
    if (inclusion.answer === "yes") continue;
    if (inclusion.answer === "no") return { lane, distance, inclusion };
    doubt ??= { lane, distance, inclusion };
  }
  return doubt;
}

/** The better of two by the same measure. */
export function better(a: NearestFound | undefined, b: NearestFound | undefined): NearestFound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  if (a.inclusion.answer !== b.inclusion.answer) return a.inclusion.answer === "no" ? a : b;
  return b.distance < a.distance ? b : a;
}

/** Without those that carry every narrowing of another one, and are therefore part of it. */
export function widest(lanes: Lanes, some: readonly number[]): readonly number[] {
  if (some.length <= 1) return some;
  const narrowings = (lane: number): bigint => (lanes.list[lane] as Lane).narrowings;
  return some.filter((lane, i) => {
    const mine = narrowings(lane);
    return !some.some((other, j) => {
      const theirs = narrowings(other);
      return i !== j && (theirs & mine) === theirs && (theirs !== mine || j < i);
    });
  });
}

/** Calls back for every capability of which some lane is set. Its lanes stand next to each other. */
export function eachCapability(
  lanes: Lanes,
  bits: Uint32Array,
  visit: (capability: string, some: readonly number[]) => void,
): void {
  let [capability, some]: [string, number[]] = ["", []];
  eachLane(bits, (lane) => {
    const next = (lanes.list[lane] as Lane).capability;
    if (some.length > 0 && next !== capability) {
      visit(capability, some);
      some = [];
    }
    capability = next;
    some.push(lane);
  });
  if (some.length > 0) visit(capability, some);
}
