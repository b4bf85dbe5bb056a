// What the analysis found each agent to hold, as grants that a policy can be made of.

import { type GrantPolicy, grantPolicy, type PolicyGrant, type ToolSummary } from "../../policy/index.js";
import type { Capability, ValueType, Workflow } from "../../lattice/index.js";
import type { LoadedWorkflow } from "./load.js";

export interface EmitOptions {
  readonly app: string;
  /** Only these tools, by the gateway's names; all when absent. */
  readonly served?: ReadonlySet<string>;
  readonly argumentsElsewhere?: boolean;
}

/** The policy that permits every agent of a workflow what it can come to hold, and nothing else. */
export function emitPolicy(loaded: LoadedWorkflow, { app, served, argumentsElsewhere }: EmitOptions): GrantPolicy {
  const { workflow, analysis, file, hash } = loaded;
  const nameOf = (capability: string): string => workflow.servedAs?.get(capability) ?? capability;
  const isServed = (capability: string): boolean => served === undefined || served.has(nameOf(capability));
  const grants = workflow.agents.flatMap(({ name: agent }) =>
    [...analysis.scope(agent)]
      .filter(([capability]) => isServed(capability))
      .map(([capability, held]): PolicyGrant => {
        const schema = schemaOf(held.arguments, workflow.capabilities.get(capability));
        const narrowed = schema === true ? {} : { arguments: schema };
        return { app, agent, tool: nameOf(capability), ...narrowed };
      }),
  );
  const header = [
    `Emitted by \`portcullis lattice check --emit policy\` from ${file}, sha256 ${hash}:`,
    "what each agent can come to hold, and nothing else. Change the workflow, not this file.",
  ];
  return grantPolicy(grants, summaries(workflow), { header, argumentsElsewhere: argumentsElsewhere ?? false });
}

/** One schema for the policy writer. What the tool's own schema says is checked before any policy. */
function schemaOf(type: ValueType, own: Capability | undefined): unknown {
  if (type === own?.arguments) return true;
  if (type.is === "schema") return type.schema;
  const parts = type.of.map((part) => schemaOf(part, own));
  if (type.is === "any") return parts.includes(true) ? true : { anyOf: parts };
  const narrowing = parts.filter((part) => part !== true);
  return narrowing.length === 0 ? true : { allOf: narrowing };
}

/** The tools as the workflow knows them. */
function summaries(workflow: Workflow): ToolSummary[] {
  return [...workflow.capabilities].map(([capability, { arguments: type }]) => ({
    name: workflow.servedAs?.get(capability) ?? capability,
    server: capability.split(".")[0] ?? "",
    inputSchema: (type.is === "schema" ? type.schema : true) as ToolSummary["inputSchema"],
    tags: [],
    readOnly: false,
  }));
}
