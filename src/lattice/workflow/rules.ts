import { NO_VALUE } from "../inclusion/type.js";
import { Graph, hasBit, PASS, setBit } from "./graph.js";
import { better, eachCapability, type Lanes, type NearestFound, nearestBeyond } from "./lanes.js";
import type { CapabilityGrant, RuleEvidence, Violation, Workflow, WorkflowAgent, WorkflowRule } from "./model.js";
import { Reach } from "./reach.js";
import type { Shift } from "./update.js";

/** How the analysis tells a story about nodes and edges. */
interface Telling {
  way(last: number, edges: readonly number[]): { readonly agents: string[]; readonly delegations: number[] };
  grant(node: number, lane: number): CapabilityGrant;
}

interface RuleHit {
  readonly rule: WorkflowRule;
  readonly node: number;
}

/**
 * Which agents break which rules. Holding is read off the scopes; what an agent can reach through others is the same
 * search on the delegations turned round, one lane for each term of a rule.
 */
export class RuleCheck {
  readonly #workflow: Workflow;
  readonly #lanes: Lanes;
  readonly #scopes: Reach;
  readonly #terms: { readonly lanes: Uint32Array }[] = [];
  readonly #termsOf = new Map<WorkflowRule, readonly number[]>();
  readonly #words: number;
  readonly #back: Reach;
  readonly #broken = new Map<WorkflowRule, Set<number>>();

  constructor(workflow: Workflow, lanes: Lanes, scopes: Reach) {
    this.#workflow = workflow;
    this.#lanes = lanes;
    this.#scopes = scopes;
    for (const rule of workflow.rules) {
      const indexes = rule.never.map(
        ({ capabilities }) => this.#terms.push({ lanes: lanes.bits(capabilities.flatMap((c) => lanes.of(c))) }) - 1,
      );
      this.#termsOf.set(rule, indexes);
    }
    this.#words = Math.max(1, Math.ceil(this.#terms.length / 32));
    const { graph } = scopes;
    const nodes = workflow.agents.length;
    // Without rules about reaching others the reverse graph is not needed.
    const edges = workflow.rules.some((rule) => rule.throughOthers) ? graph.edges : 0;
    const turned = new Graph(
      nodes,
      Array.from({ length: edges }, (_, edge) => graph.to(edge)),
      Array.from({ length: edges }, (_, edge) => graph.from(edge)),
    );
    const keep = new Uint32Array(nodes * this.#words).fill(0xffffffff);
    const sources = new Uint32Array(keep.length);
    if (this.#terms.length > 0) {
      for (let node = 0; node < nodes; node++) sources.set(this.#held(node), node * this.#words);
    }
    this.#back = new Reach(turned, this.#words, keep, sources);
    for (const rule of workflow.rules) {
      const broken = workflow.agents.map((_, node) => node).filter((node) => this.#isBroken(rule, node));
      this.#broken.set(rule, new Set(broken));
    }
  }

  get #tracksReach(): boolean {
    return this.#workflow.rules.some((rule) => rule.throughOthers);
  }

  /** The terms of which a node itself holds something usable. */
  #held(node: number): Uint32Array {
    const held = new Uint32Array(this.#words);
    for (const term of this.#terms.keys()) if (this.#nearest(node, term) !== undefined) setBit(held, 0, term);
    return held;
  }

  /** The lane of a term that came the shortest way to a node; one that is proved to be of use before any other. */
  #nearest(node: number, term: number): number | undefined {
    const wanted = (this.#terms[term] as { lanes: Uint32Array }).lanes;
    const arrived = this.#scopes.at(node).map((bits, w) => bits & (wanted[w] as number));
    let best: NearestFound | undefined;
    eachCapability(this.#lanes, arrived, (_, lanes) => {
      best = better(best, nearestBeyond(this.#lanes, this.#scopes, node, lanes, NO_VALUE));
    });
    return best?.lane;
  }

  #isBroken(rule: WorkflowRule, node: number): boolean {
    const { name } = this.#workflow.agents[node] as WorkflowAgent;
    if (rule.except.includes(name) || (rule.agents !== undefined && !rule.agents.includes(name))) return false;
    const terms = this.#termsOf.get(rule) ?? [];
    const held = rule.throughOthers ? this.#back.at(node) : this.#held(node);
    return terms.every((term) => hasBit(held, 0, term));
  }

  violations(telling: Telling): Violation[] {
    return [...this.#broken].flatMap(([rule, nodes]) =>
      [...nodes].toSorted((a, b) => a - b).map((node) => this.violation(rule, node, telling)),
    );
  }

  violation(rule: WorkflowRule, node: number, telling: Telling): Violation {
    const terms = (this.#termsOf.get(rule) ?? []).map((term, i): RuleEvidence => {
      // The way back runs from the holder to the agent; told forwards it is the other way round.
      const edges = rule.throughOthers ? (this.#back.path(node, term) ?? []).toReversed() : [];
      const last = edges.at(-1);
      const holder = last === undefined ? node : this.#scopes.graph.to(last);
      const lane = this.#nearest(holder, term) as number;
      return { term: rule.never[i]?.name ?? "", ...telling.way(holder, edges), grant: telling.grant(holder, lane) };
    });
    const { name } = this.#workflow.agents[node] as WorkflowAgent;
    return { kind: "rule", rule: rule.name, agent: name, terms };
  }

  /** After a delegation was added to the scopes and `shifts` came of it. */
  added(from: number, to: number, shifts: readonly Shift[]): { appeared: RuleHit[]; vanished: RuleHit[] } {
    const own = this.#tracksReach ? this.#back.addEdge(to, from, PASS).shifts : [];
    return this.#follow(shifts, own);
  }

  removed(edge: number, shifts: readonly Shift[]): { appeared: RuleHit[]; vanished: RuleHit[] } {
    const own = this.#tracksReach ? this.#back.removeEdge(edge) : [];
    return this.#follow(shifts, own);
  }

  #follow(scopes: readonly Shift[], own: readonly Shift[]): { appeared: RuleHit[]; vanished: RuleHit[] } {
    const hits = { appeared: [] as RuleHit[], vanished: [] as RuleHit[] };
    if (this.#terms.length === 0) return hits;
    const nodes = new Set([...scopes, ...own].map(({ node }) => node));
    for (const { node } of scopes)
      for (const shift of this.#back.setSources(node, this.#held(node))) nodes.add(shift.node);
    for (const [rule, broken] of this.#broken) {
      for (const node of nodes) {
        const [was, is] = [broken.has(node), this.#isBroken(rule, node)];
        if (is && !was) hits.appeared.push({ rule, node });
        if (was && !is) hits.vanished.push({ rule, node });
        if (is) broken.add(node);
        else broken.delete(node);
      }
    }
    return hits;
  }
}
