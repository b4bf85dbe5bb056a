// A workflow in the words of the gate: the same delegations that were analysed decide about every call.

import type { DelegationRules, Judged } from "../../policy/index.js";
import type { Delegation, JsonSchema, ValueType, Workflow } from "../../lattice/index.js";
import type { JsonObject } from "../../mcp/index.js";
import { Schema } from "../../mcp/server/index.js";

/** Schemas that tokens bring, each compiled once while it is in use. */
const MAX_COMPILED = 256;

export function workflowRules(workflow: Workflow, hash: string): DelegationRules {
  const agents = new Map(workflow.agents.map((agent) => [agent.name, agent]));
  const offered = new Map(workflow.agents.map(({ name, holds }) => [name, new Set(holds)]));
  const between = new Map<string, Delegation[]>();
  for (const delegation of workflow.delegations) {
    const key = wayOf(delegation.from, delegation.to);
    between.set(key, [...(between.get(key) ?? []), delegation]);
  }
  const tools = new Map([...workflow.capabilities.keys()].map((name) => [name, workflow.servedAs?.get(name) ?? name]));
  const capabilities = new Map([...tools].map(([capability, tool]) => [tool, capability]));
  const judge = new Judge();
  const passes = ({ only }: Delegation, capability: string): boolean => only === undefined || only.includes(capability);
  return {
    workflow: hash,
    isRoot: (agent) => agents.get(agent)?.isRoot === true,
    offered: (agent) => offered.get(agent),
    passedOn(from, to) {
      const list = between.get(wayOf(from, to));
      return list && ((capability) => list.some((delegation) => passes(delegation, capability)));
    },
    takes: (capability, args) => judge.accepts(workflow.capabilities.get(capability)?.arguments, args),
    async admits(from, to, capability, args) {
      for (const delegation of between.get(wayOf(from, to)) ?? []) {
        if (!passes(delegation, capability)) continue;
        const type = delegation.arguments?.get(capability);
        if (type === undefined || (await judge.accepts(type, args))) return true;
      }
      return false;
    },
    allows(agent, capability, args) {
      const known = agents.get(agent);
      if (known === undefined) return false;
      return known.allow === undefined || judge.accepts(known.allow.get(capability), args);
    },
    fits: (schema, args) => judge.fits(schema as JsonSchema, args),
    toolOf: (capability) => tools.get(capability),
    capabilityOf: (tool) => capabilities.get(tool),
  };
}

function wayOf(from: string, to: string): string {
  return JSON.stringify([from, to]);
}

class Judge {
  readonly #compiled = new Map<string, Schema>();
  readonly #known = new WeakMap<object, Schema>();

  /** No type at all accepts nothing. */
  async accepts(type: ValueType | undefined, args: JsonObject): Promise<boolean> {
    if (type === undefined) return false;
    if (type.is === "schema") return this.fits(type.schema, args);
    for (const part of type.of) {
      const accepted = await this.accepts(part, args);
      if (accepted === (type.is === "any")) return accepted;
    }
    return type.is === "all";
  }

  fits(schema: JsonSchema, args: JsonObject): Judged {
    if (typeof schema === "boolean") return schema;
    const checked = this.#schema(schema).validate(args);
    return checked instanceof Promise ? checked.then(({ ok }) => ok) : checked.ok;
  }

  #schema(schema: Exclude<JsonSchema, boolean>): Schema {
    const known = this.#known.get(schema);
    if (known !== undefined) return known;
    const text = JSON.stringify(schema);
    let compiled = this.#compiled.get(text);
    if (compiled === undefined) {
      compiled = new Schema(schema as ConstructorParameters<typeof Schema>[0]);
      if (this.#compiled.size >= MAX_COMPILED) this.#compiled.clear();
      this.#compiled.set(text, compiled);
    }
    this.#known.set(schema, compiled);
    return compiled;
  }
}
