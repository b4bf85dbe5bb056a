import type { Inclusion } from "../inclusion/includes.js";
import type { ValueType } from "../inclusion/type.js";
import type { Lane, Lanes } from "./lanes.js";
import type { Reach } from "./reach.js";

export interface Found {
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
): Found | undefined {
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
  let doubt: Found | undefined;
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
export function better(a: Found | undefined, b: Found | undefined): Found | undefined {
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

/** The lanes at a node by capability. */
export function byCapability(lanes: Lanes, some: readonly number[]): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  for (const lane of some) {
    const { capability } = lanes.list[lane] as Lane;
    const group = groups.get(capability);
    if (group === undefined) groups.set(capability, [lane]);
    else group.push(lane);
  }
  return groups;
}
