import type { Inclusion } from "../inclusion/includes.js";
import type { ValueType } from "../inclusion/type.js";
import { eachLane } from "./bits.js";
import type { Lane, Lanes } from "./lanes.js";
import type { Reach } from "./reach.js";

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
