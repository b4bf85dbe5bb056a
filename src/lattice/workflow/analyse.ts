import type { Capability } from "../capability.js";
import { LatticeError } from "../errors.js";
import type { Inclusion, InclusionOptions } from "../inclusion/includes.js";
import { ANY_VALUE, NO_VALUE, type ValueType } from "../inclusion/type.js";
import { eachLane, Graph, setBit, type Transfer } from "./graph.js";
import { eachCapability, type Lane, Lanes, nearestBeyond, widest } from "./lanes.js";
import {
  type CapabilityGrant,
  type Delegation,
  type Violation,
  violationKey,
  type Workflow,
  type WorkflowAgent,
} from "./model.js";
import { Reach } from "./reach.js";
import { RuleCheck } from "./rules.js";
import type { Shift } from "./update.js";

export interface AnalysisOptions extends InclusionOptions {
  readonly maxAgents?: number;
  readonly maxDelegations?: number;
}

export const ANALYSIS_LIMITS = { maxAgents: 1_000_000, maxDelegations: 10_000_000 } as const;

/** What one change to the delegations brought and took. */
export interface WorkflowChange {
  readonly delegation: number;
  readonly appeared: readonly Violation[];
  readonly vanished: readonly string[];
}

/**
 * Who can come to hold what. Scope(v) is what v has of its own, if it is a root, joined with Caps(v) ∩ Scope(u) ∩ the
 * narrowing of each delegation u → v: the least solution, so that a circle of delegations grants nothing by itself.
 */
export class Analysis {
  readonly workflow: Workflow;
  readonly #options: AnalysisOptions;
  readonly #agents = new Map<string, number>();
  readonly #delegations: Delegation[];
  /** Delegation numbers by edge of the graph; they differ once the graph was built anew. */
  #numbers: number[] = [];
  #lanes: Lanes;
  #reach: Reach;
  #rules: RuleCheck;

  constructor(workflow: Workflow, options: AnalysisOptions = {}) {
    const { maxAgents, maxDelegations } = { ...ANALYSIS_LIMITS, ...options };
    if (workflow.agents.length > maxAgents || workflow.delegations.length > maxDelegations) {
      throw new LatticeError("LATTICE_TOO_LARGE", `more than ${maxAgents} agents or ${maxDelegations} delegations`);
    }
    this.workflow = workflow;
    this.#options = options;
    for (const [i, { name, line }] of workflow.agents.entries()) {
      if (this.#agents.has(name))
        throw new LatticeError("LATTICE_DUPLICATE", `the agent \`${name}\` is there twice`, line);
      this.#agents.set(name, i);
    }
    this.#delegations = [...workflow.delegations];
    ({
      lanes: this.#lanes,
      reach: this.#reach,
      rules: this.#rules,
    } = this.#build(workflow.delegations.map((_, i) => i)));
  }

  /** Capabilities whose scope may be taken for larger than it is, because their ways are narrowed in too many ways. */
  get simplified(): readonly string[] {
    return this.#lanes.simplified;
  }

  #node(name: string, line?: number): number {
    const node = this.#agents.get(name);
    if (node === undefined) throw new LatticeError("LATTICE_UNKNOWN_NAME", `there is no agent \`${name}\``, line);
    return node;
  }

  #build(alive: readonly number[]): { lanes: Lanes; reach: Reach; rules: RuleCheck } {
    const { agents } = this.workflow;
    const delegations = alive.map((i) => this.#delegations[i] as Delegation);
    const lanes = new Lanes({ ...this.workflow, delegations }, this.#options);
    const keep = new Uint32Array(agents.length * lanes.words);
    const sources = new Uint32Array(keep.length);
    for (const [node, { name, holds, isRoot, line }] of agents.entries()) {
      for (const capability of holds) {
        if (!this.workflow.capabilities.has(capability)) {
          throw new LatticeError(
            "LATTICE_UNKNOWN_NAME",
            `\`${name}\` holds \`${capability}\`, which no server offers`,
            line,
          );
        }
        for (const lane of lanes.at(node, capability)) setBit(keep, node * lanes.words, lane);
        if (isRoot) setBit(sources, node * lanes.words, lanes.whole(capability));
      }
    }
    const from = delegations.map((delegation) => this.#node(delegation.from, delegation.line));
    const to = delegations.map((delegation) => this.#node(delegation.to, delegation.line));
    const transfers = new Map<number, Transfer>();
    for (const [edge, delegation] of delegations.entries()) {
      const transfer = lanes.transfer(delegation, from[edge] as number, to[edge] as number);
      if (transfer !== undefined && transfer.mask !== undefined) transfers.set(edge, transfer);
    }
    const graph = new Graph(agents.length, from, to, transfers);
    const reach = new Reach(graph, lanes.words, keep, sources);
    this.#numbers = [...alive];
    return { lanes, reach, rules: new RuleCheck(this.workflow, lanes, reach) };
  }

  /** Every violation, each with a shortest way. */
  violations(): Violation[] {
    const found = this.workflow.agents.flatMap((_, node) => this.#violationsAt(node));
    return [...found, ...this.#rules.violations(this.#evidence)];
  }

  /** Scope(v): what an agent comes to hold, with the arguments that arrive by any way. */
  scope(agent: string): ReadonlyMap<string, Capability> {
    const node = this.#node(agent);
    const scope = new Map<string, Capability>();
    eachCapability(this.#lanes, this.#reach.at(node), (name, lanes) => {
      const of = widest(this.#lanes, lanes)
        .filter((lane) => !this.#lanes.isDead(lane))
        .map((lane) => (this.#lanes.list[lane] as Lane).type);
      if (of.length === 0) return;
      const result = this.workflow.capabilities.get(name)?.result ?? ANY_VALUE;
      scope.set(name, { name, arguments: of.length === 1 ? (of[0] as ValueType) : { is: "any", of }, result });
    });
    return scope;
  }

  #violationsAt(node: number): Violation[] {
    const agent = this.workflow.agents[node] as WorkflowAgent;
    const { allow } = agent;
    if (allow === undefined) return [];
    const violations: Violation[] = [];
    eachCapability(this.#lanes, this.#reach.at(node), (capability, lanes) => {
      const allowed = allow.get(capability);
      const found = nearestBeyond(this.#lanes, this.#reach, node, lanes, allowed ?? NO_VALUE);
      if (found === undefined) return;
      const grant = this.#grant(node, found.lane, found.inclusion);
      violations.push({ kind: "allow", agent: agent.name, isNamed: allowed !== undefined, grant });
    });
    return violations;
  }

  #grant(node: number, lane: number, inclusion: Inclusion): CapabilityGrant {
    const { capability } = this.#lanes.list[lane] as Lane;
    const edges = this.#reach.path(node, lane) ?? [];
    return {
      capability,
      ...this.#evidence.way(node, edges),
      ...(inclusion.answer === "no" ? { argument: { value: inclusion.witness } } : {}),
      ...(inclusion.answer === "unknown" ? { why: inclusion.why } : {}),
      isProved: inclusion.answer === "no",
    };
  }

  readonly #evidence = {
    way: (last: number, edges: readonly number[]) => ({
      agents: [...edges.map((edge) => this.#name(this.#reach.graph.from(edge))), this.#name(last)],
      delegations: edges.map((edge) => this.#numbers[edge] as number),
    }),
    /** The nearest lane of a capability that a node holds and that can be used. */
    grant: (node: number, lane: number): CapabilityGrant => this.#grant(node, lane, this.#lanes.within(lane, NO_VALUE)),
  };

  #name(node: number): string {
    return (this.workflow.agents[node] as WorkflowAgent).name;
  }

  /** Adds a delegation; its number is in the answer. */
  addDelegation(delegation: Delegation): WorkflowChange {
    const [from, to] = [this.#node(delegation.from, delegation.line), this.#node(delegation.to, delegation.line)];
    const number = this.#delegations.push(delegation) - 1;
    const transfer = this.#lanes.dependOn(delegation) ? undefined : this.#lanes.transfer(delegation, from, to);
    if (transfer === undefined) return this.#rebuild(number, [...this.#alive(), number]);
    return this.#change(number, () => {
      const { edge, shifts } = this.#reach.addEdge(from, to, transfer);
      this.#numbers[edge] = number;
      return { shifts, rules: () => this.#rules.added(from, to, shifts) };
    });
  }

  removeDelegation(number: number): WorkflowChange {
    // The number is the edge unless the graph was built anew in between.
    const edge = this.#numbers[number] === number ? number : this.#numbers.indexOf(number);
    if (!this.#reach.graph.has(edge)) {
      throw new LatticeError("LATTICE_UNKNOWN_NAME", `there is no delegation number ${number}`);
    }
    if (this.#lanes.dependOn(this.#delegations[number] as Delegation)) {
      const others = this.#alive().filter((other) => other !== number);
      return this.#rebuild(number, others);
    }
    return this.#change(number, () => {
      const shifts = this.#reach.removeEdge(edge);
      return { shifts, rules: () => this.#rules.removed(edge, shifts) };
    });
  }

  #alive(): number[] {
    return this.#numbers.filter((_, edge) => this.#reach.graph.has(edge));
  }

  /** Only the agents whose lanes or reach changed are looked at, before and after. */
  #change(delegation: number, apply: () => { shifts: Shift[]; rules: () => RuleShift }): WorkflowChange {
    const { shifts, rules } = apply();
    const before = new Set<string>();
    const after = new Map<string, Violation>();
    for (const { node, gained, lost } of shifts) {
      const now = this.#violationsAt(node);
      for (const violation of now) after.set(violationKey(violation), violation);
      for (const key of this.#keysBefore(node, gained, lost)) before.add(key);
    }
    const { appeared, vanished } = rules();
    return {
      delegation,
      appeared: [
        ...[...after].filter(([key]) => !before.has(key)).map(([, violation]) => violation),
        ...appeared.map(({ rule, node }) => this.#rules.violation(rule, node, this.#evidence)),
      ],
      vanished: [
        ...[...before].filter((key) => !after.has(key)),
        ...vanished.map(({ rule, node }) => `rule ${rule.name} ${this.#name(node)}`),
      ],
    };
  }

  /** Which capabilities were violations at a node before its lanes changed. */
  #keysBefore(node: number, gained: Uint32Array, lost: Uint32Array): Set<string> {
    const { allow, name } = this.workflow.agents[node] as WorkflowAgent;
    const keys = new Set<string>();
    if (allow === undefined) return keys;
    const lanes = this.#reach.at(node).map((bits, w) => (bits & ~(gained[w] as number)) | (lost[w] as number));
    eachLane(lanes, (lane) => {
      const { capability } = this.#lanes.list[lane] as Lane;
      if (this.#lanes.within(lane, allow.get(capability) ?? NO_VALUE).answer !== "yes")
        keys.add(`allow ${name} ${capability}`);
    });
    return keys;
  }

  /** Where the lanes themselves may be others, everything is built anew. */
  #rebuild(delegation: number, alive: readonly number[]): WorkflowChange {
    const before = new Map(this.violations().map((violation) => [violationKey(violation), violation]));
    ({ lanes: this.#lanes, reach: this.#reach, rules: this.#rules } = this.#build(alive));
    const after = new Map(this.violations().map((violation) => [violationKey(violation), violation]));
    return {
      delegation,
      appeared: [...after].filter(([key]) => !before.has(key)).map(([, violation]) => violation),
      vanished: [...before.keys()].filter((key) => !after.has(key)),
    };
  }
}

type RuleShift = ReturnType<RuleCheck["removed"]>;

export function analyse(workflow: Workflow, options: AnalysisOptions = {}): Analysis {
  return new Analysis(workflow, options);
}
