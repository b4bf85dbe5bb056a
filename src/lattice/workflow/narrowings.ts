import { typeKey } from "../inclusion/type.js";
import type { Workflow } from "./model.js";

const MAX_STATES = 200_000;

/**
 * Every set of narrowings of a capability that some way through the workflow collects, as bits, the empty set first.
 * Undefined when there are more than `most`, or when finding out takes too long.
 */
export function collectedSets(
  { agents, delegations }: Workflow,
  capability: string,
  narrowings: readonly string[],
  most: number,
): readonly number[] | undefined {
  const offered = new Set(agents.filter(({ holds }) => holds.includes(capability)).map(({ name }) => name));
  const steps = new Map<string, { readonly to: string; readonly adds: number }[]>();
  for (const { from, to, only, arguments: narrowed } of delegations) {
    if (!offered.has(from) || !offered.has(to) || (only !== undefined && !only.includes(capability))) continue;
    const type = narrowed?.get(capability);
    const bit = type === undefined ? -1 : narrowings.indexOf(typeKey(type));
    const list = steps.get(from) ?? [];
    list.push({ to, adds: bit === -1 ? 0 : 1 << bit });
    steps.set(from, list);
  }
  const sets = new Set([0]);
  const seen = new Set<string>();
  const open: { agent: string; set: number }[] = [];
  const enter = (agent: string, set: number): void => {
    const key = `${set} ${agent}`;
    if (seen.has(key)) return;
    seen.add(key);
    sets.add(set);
    open.push({ agent, set });
  };
  for (const { name, isRoot } of agents) if (isRoot && offered.has(name)) enter(name, 0);
  for (let state = open.pop(); state !== undefined; state = open.pop()) {
    if (sets.size > most || seen.size > MAX_STATES) return undefined;
    for (const { to, adds } of steps.get(state.agent) ?? []) enter(to, state.set | adds);
  }
  return [...sets].toSorted((a, b) => a - b);
}
