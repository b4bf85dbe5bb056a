import type { Capability } from "../capability.js";
import type { ValueType } from "../inclusion/type.js";

/** A workflow as plain data. Capabilities are named `server.tool`; agents, delegations and rules refer to those names. */
export interface Workflow {
  readonly capabilities: ReadonlyMap<string, Capability>;
  /** The names by which a gateway serves capabilities, where these are not their own. */
  readonly servedAs?: ReadonlyMap<string, string>;
  readonly agents: readonly WorkflowAgent[];
  readonly delegations: readonly Delegation[];
  readonly rules: readonly WorkflowRule[];
}

export interface WorkflowAgent {
  readonly name: string;
  /** Caps(v): what its servers offer it. */
  readonly holds: readonly string[];
  /** What it may come to hold, each with the arguments that are allowed; undefined: all that it is offered. */
  readonly allow?: ReadonlyMap<string, ValueType> | undefined;
  /** It has authority of its own: its scope starts as its capabilities. Everybody else has what is delegated to them. */
  readonly isRoot: boolean;
  readonly line?: number | undefined;
}

export interface Delegation {
  readonly from: string;
  readonly to: string;
  /** Only these capabilities are passed on; undefined: all. */
  readonly only?: readonly string[] | undefined;
  /** For these capabilities, only such arguments are passed on. */
  readonly arguments?: ReadonlyMap<string, ValueType> | undefined;
  readonly line?: number | undefined;
}

/** No agent may hold something of each term at once. */
export interface WorkflowRule {
  readonly name: string;
  readonly never: readonly RuleTerm[];
  /** The agents it is about; undefined: all. */
  readonly agents?: readonly string[] | undefined;
  readonly except: readonly string[];
  /** Whether what an agent can reach by delegating counts as held. */
  readonly throughOthers: boolean;
  readonly line?: number | undefined;
}

export interface RuleTerm {
  readonly name: string;
  readonly capabilities: readonly string[];
}

/** How a holder came by a capability. */
export interface CapabilityGrant {
  readonly capability: string;
  /** From the root that had it first to the holder. */
  readonly agents: readonly string[];
  /** Numbers of the delegations between them, counted from 0. */
  readonly delegations: readonly number[];
  /** Arguments that every step of the way accepts and, for an allow list, that the list does not. */
  readonly argument?: { readonly value: unknown };
  /** False when it could not be decided and was therefore taken as a violation. */
  readonly isProved: boolean;
  /** Why it could not be decided. */
  readonly why?: string;
}

export type Violation =
  | {
      readonly kind: "allow";
      readonly agent: string;
      /** Whether the allow list names the capability, though not with all that arrives. */
      readonly isNamed: boolean;
      readonly grant: CapabilityGrant;
    }
  | { readonly kind: "rule"; readonly agent: string; readonly rule: string; readonly terms: readonly RuleEvidence[] };

/** For one term of a rule: whom the agent reaches that holds it, and how that one came by it. */
export interface RuleEvidence {
  readonly term: string;
  readonly agents: readonly string[];
  readonly delegations: readonly number[];
  readonly grant: CapabilityGrant;
}

/** A name for a violation that stays the same when other parts of the workflow change. */
export function violationKey(violation: Violation): string {
  return violation.kind === "allow"
    ? `allow ${violation.agent} ${violation.grant.capability}`
    : `rule ${violation.rule} ${violation.agent}`;
}

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
