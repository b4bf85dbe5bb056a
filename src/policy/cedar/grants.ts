// A policy that permits exactly what a list of grants says. Written by a machine from a proof, and readable by a person.

import { PolicyCatalog } from "./catalog.js";
import { argumentConditions } from "./grant-conditions.js";
import { quoteString } from "./language/scan.js";
import type { ToolSummary } from "./types.js";

/** An agent may call a tool, with arguments that fit the schema; any arguments that the tool takes when absent. */
export interface PolicyGrant {
  readonly app: string;
  readonly agent: string;
  readonly tool: string;
  readonly arguments?: unknown;
}

export interface GrantPolicyOptions {
  /** Lines that say where the policy comes from. */
  readonly header?: readonly string[];
  /** Arguments are checked by another voice too: then a condition that Cedar cannot say is left out. */
  readonly argumentsElsewhere?: boolean;
}

export interface GrantPolicy {
  readonly text: string;
  /** Grants whose arguments Cedar cannot say. Without another voice they are not permitted at all. */
  readonly unsaid: readonly PolicyGrant[];
}

const PER_CLAUSE = 16;
const MAX_ACTIONS = 200;
const MAX_AGENTS = 200;

export function grantPolicy(
  grants: readonly PolicyGrant[],
  tools: readonly ToolSummary[],
  options: GrantPolicyOptions = {},
): GrantPolicy {
  const catalog = new PolicyCatalog(tools);
  const schemas = new Map(tools.map((tool) => [tool.name, tool.inputSchema]));
  const unsaid: PolicyGrant[] = [];
  const free = new Map<string, PolicyGrant[]>();
  const rules: string[] = [];
  for (const grant of grants) {
    const action = catalog.actions.get(grant.tool);
    const said =
      grant.arguments === undefined || action === undefined
        ? []
        : argumentConditions(grant.arguments, action.shape, schemas.get(grant.tool));
    if (said === undefined) unsaid.push(grant);
    if (said === undefined && options.argumentsElsewhere !== true) {
      rules.push(`// not permitted: Cedar cannot say which arguments ${comment(grant)}`);
    } else if (said === undefined || said.length === 0) {
      const key = `${grant.app}/${grant.agent}`;
      free.set(key, [...(free.get(key) ?? []), grant]);
    } else if (!said.includes("false")) rules.push(rule(ruleId(rules.length, grant.agent, grant.tool), grant, said));
  }
  for (const { agents, tools: held } of alike(free)) {
    for (let at = 0; at < held.length; at += MAX_ACTIONS) {
      rules.push(plainRule(ruleId(rules.length, agents[0] ?? ""), agents, held.slice(at, at + MAX_ACTIONS)));
    }
  }
  const header = (options.header ?? []).map((line) => `// ${quoteString(line).slice(1, -1)}`);
  // Nothing granted is still a policy: one that permits nothing.
  const body = rules.length === 0 ? ['@id("lattice.nothing")\nforbid (principal, action, resource);'] : rules;
  const parts = header.length === 0 ? body : [header.join("\n"), ...body];
  return { text: `${parts.join("\n\n")}\n`, unsaid };
}

/** Agents that hold the same tools share a rule: checking a policy takes time for every rule and tool. */
function alike(free: ReadonlyMap<string, readonly PolicyGrant[]>): { agents: string[]; tools: readonly string[] }[] {
  const all: { agents: string[]; tools: readonly string[] }[] = [];
  const open = new Map<string, { agents: string[]; tools: readonly string[] }>();
  for (const [agent, list] of free) {
    const held = list.map(({ tool }) => tool);
    const key = JSON.stringify(held);
    let group = open.get(key);
    if (group === undefined || group.agents.length >= MAX_AGENTS) {
      group = { agents: [], tools: held };
      open.set(key, group);
      all.push(group);
    }
    group.agents.push(agent);
  }
  return all;
}

function plainRule(id: string, agents: readonly string[], tools: readonly string[]): string {
  const names = tools.map((tool) => `Action::${quoteString(tool)}`);
  const callers = agents.map((agent) => `Agent::${quoteString(agent)}`);
  const action = names.length === 1 ? `action == ${names[0]}` : `action in [\n    ${names.join(",\n    ")}\n  ]`;
  const principal = callers.length === 1 ? `principal == ${callers[0]}` : "principal";
  const which = callers.length === 1 ? "" : `\nwhen { [${callers.join(", ")}].contains(principal) }`;
  return `@id(${id})\npermit (\n  ${principal},\n  ${action},\n  resource\n)${which};`;
}

/** A number makes it unique, the names make it readable. */
function ruleId(number: number, ...names: readonly string[]): string {
  const readable = names.map((name) => name.replaceAll(/[^\w./-]/g, "_").slice(0, 48)).join(".");
  return quoteString(`lattice.${number + 1}.${readable}`);
}

function rule(id: string, { app, agent, tool }: PolicyGrant, conditions: readonly string[]): string {
  const clauses: string[] = [];
  for (let at = 0; at < conditions.length; at += PER_CLAUSE) {
    clauses.push(`when {\n  ${conditions.slice(at, at + PER_CLAUSE).join(" &&\n  ")}\n}`);
  }
  return [
    `@id(${id})`,
    "permit (",
    `  principal == Agent::${quoteString(`${app}/${agent}`)},`,
    `  action == Action::${quoteString(tool)},`,
    "  resource",
    ")",
    `${clauses.join("\n")};`,
  ].join("\n");
}

function comment({ agent, tool }: PolicyGrant): string {
  return `${quoteString(agent).slice(1, -1)} may use with ${quoteString(tool).slice(1, -1)}`;
}
