import type { Delegation } from "./model.js";

/** The delegations of some circle, in order, or undefined when there is none. Without recursion: chains may be long. */
export function findCycle(delegations: readonly Delegation[]): Delegation[] | undefined {
  const out = new Map<string, Delegation[]>();
  for (const delegation of delegations) {
    const list = out.get(delegation.from);
    if (list === undefined) out.set(delegation.from, [delegation]);
    else list.push(delegation);
  }
  const done = new Set<string>();
  for (const start of out.keys()) {
    const path: Delegation[] = [];
    const onPath = new Map<string, number>([[start, 0]]);
    const stack = [{ agent: start, next: 0 }];
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const delegation = done.has(top.agent) ? undefined : out.get(top.agent)?.[top.next++];
      if (delegation === undefined) {
        done.add(top.agent);
        onPath.delete(top.agent);
        stack.pop();
        path.pop();
        continue;
      }
      const since = onPath.get(delegation.to);
      if (since !== undefined) return [...path.slice(since), delegation];
      if (done.has(delegation.to)) continue;
      path.push(delegation);
      onPath.set(delegation.to, path.length);
      stack.push({ agent: delegation.to, next: 0 });
    }
  }
  return undefined;
}
