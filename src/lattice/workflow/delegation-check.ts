import { eachLane, Graph, hasBit, PASS } from "./graph.js";
import { Reach } from "./reach.js";

/** Agents and capabilities by number, for workflows too large to write down one by one. */
export interface DelegationGraph {
  readonly agents: number;
  readonly capabilities: number;
  /** Delegations: number i leads from `from[i]` to `to[i]` and passes everything that both ends hold. */
  readonly from: ArrayLike<number>;
  readonly to: ArrayLike<number>;
  /** For each agent `words(capabilities)` words, one bit for each capability: what it is offered, what it may have. */
  readonly holds: Uint32Array;
  readonly allows: Uint32Array;
  readonly roots: Iterable<number>;
}

export interface NumberedChange {
  /** Pairs of agent and capability. */
  readonly appeared: readonly (readonly [agent: number, capability: number])[];
  readonly vanished: readonly (readonly [agent: number, capability: number])[];
}

/** How many words of 32 bits hold one bit for each capability. */
export function words(capabilities: number): number {
  return Math.max(1, Math.ceil(capabilities / 32));
}

/**
 * The question of the analysis on bare numbers: which agent comes to hold a capability that it may not have, and by
 * which delegations at the least. All capabilities are followed at once.
 */
export class DelegationCheck {
  readonly #reach: Reach;
  readonly #allows: Uint32Array;
  readonly #words: number;
  readonly #agents: number;

  constructor({ agents, capabilities, from, to, holds, allows, roots }: DelegationGraph) {
    this.#agents = agents;
    this.#words = words(capabilities);
    this.#allows = allows;
    const sources = new Uint32Array(agents * this.#words);
    for (const root of roots) {
      const at = root * this.#words;
      sources.set(holds.subarray(at, at + this.#words), at);
    }
    this.#reach = new Reach(new Graph(agents, from, to), this.#words, holds, sources);
  }

  /** Calls back for every violation. */
  each(visit: (agent: number, capability: number) => void): void {
    const bad = new Uint32Array(this.#words);
    for (let agent = 0; agent < this.#agents; agent++) {
      const scope = this.#reach.at(agent);
      let any = 0;
      for (let w = 0; w < this.#words; w++) {
        bad[w] = (scope[w] as number) & ~(this.#allows[agent * this.#words + w] as number);
        any |= bad[w] as number;
      }
      if (any !== 0) eachLane(bad, (capability) => visit(agent, capability));
    }
  }

  /** The delegations of a shortest way by which an agent comes to hold a capability; undefined when it does not. */
  witness(agent: number, capability: number): number[] | undefined {
    return this.#reach.path(agent, capability);
  }

  /** Adds a delegation; its number is the next one. */
  add(from: number, to: number): NumberedChange & { readonly delegation: number } {
    const { edge, shifts } = this.#reach.addEdge(from, to, PASS);
    return { delegation: edge, ...this.#changes(shifts) };
  }

  remove(delegation: number): NumberedChange {
    if (!this.#reach.graph.has(delegation)) throw new RangeError(`there is no delegation number ${delegation}`);
    return this.#changes(this.#reach.removeEdge(delegation));
  }

  #changes(shifts: ReturnType<Reach["removeEdge"]>): NumberedChange {
    const changes = { appeared: [] as [number, number][], vanished: [] as [number, number][] };
    for (const { node, gained, lost } of shifts) {
      const isBad = (capability: number): boolean => !hasBit(this.#allows, node * this.#words, capability);
      eachLane(gained, (c) => isBad(c) && changes.appeared.push([node, c]));
      eachLane(lost, (c) => isBad(c) && changes.vanished.push([node, c]));
    }
    return changes;
  }
}
