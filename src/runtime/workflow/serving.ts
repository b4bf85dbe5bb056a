// A workflow in force: callers are identified by their delegations, and each call is checked against its delegation chain.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { delegatedIdentity, type Identify, localIdentity } from "../../auth/index.js";
import type { Capability, Delegation, JsonSchema, ValueType, Workflow } from "../../lattice/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { JsonObject } from "../../mcp/index.js";
import { Schema } from "../../mcp/server/index.js";
import {
  ChainReader,
  type Check,
  type DelegationKeys,
  type DelegationRules,
  delegationCheck,
  type GrantPolicy,
  grantPolicy,
  type PolicyGrant,
  type RuleAnswer,
  type SharedNonces,
  type ToolSummary,
} from "../../policy/index.js";
import { visible } from "../../telemetry/index.js";
import { watchDelegationKeys } from "./keys.js";
import { type LoadedWorkflow, loadWorkflow } from "./load.js";

export interface WorkflowInForce {
  /** The application whose callers are its agents. */
  readonly app: string;
  readonly file: string;
  readonly keys: DelegationKeys;
  /** `shared` remembers which tokens were spent, for all replicas. */
  checks(shared?: SharedNonces): readonly Check[];
  /** Wraps how callers are known otherwise. */
  identify(base?: Identify): Identify;
  /** Writes the policy and says where: for these tools, or for all that the workflow knows. */
  policyFile(stateDir: string, served?: Iterable<string>): string;
}

interface WorkflowOptions {
  readonly file: string;
  readonly stateDir: string;
  readonly app?: string;
  /** Public keys of gateways whose delegations are accepted. */
  readonly trusted?: readonly string[];
  /** Serve it although it breaks its own rules. What an allow list does not have is denied all the same. */
  readonly despiteViolations?: boolean;
}

export async function workflowInForce(options: WorkflowOptions): Promise<WorkflowInForce> {
  const loaded = await loadWorkflow(options.file);
  const { lattice, violations } = loaded;
  if (violations.length > 0 && options.despiteViolations !== true) {
    const shown = violations.slice(0, 5).map((violation) => `  ${visible(lattice.tell(violation))}`);
    const more = violations.length > shown.length ? [`  and ${violations.length - shown.length} more`] : [];
    throw new CliError(
      [`${options.file} is not served, because it breaks its own rules:`, ...shown, ...more].join("\n"),
      EXIT.deny,
      `\`portcullis lattice check ${options.file}\` shows all of them`,
    );
  }
  return inForce(loaded, { ...options, keys: watchDelegationKeys(options.stateDir) });
}

interface ForceOptions {
  readonly keys: () => DelegationKeys;
  readonly app?: string;
  readonly trusted?: readonly string[];
}

export function inForce(loaded: LoadedWorkflow, { keys, app = "local", trusted }: ForceOptions): WorkflowInForce {
  const rules = workflowRules(loaded.workflow, loaded.hash);
  const reader = new ChainReader({ keys, rules: () => rules, trusted });
  return {
    app,
    file: loaded.file,
    get keys() {
      return keys();
    },
    checks: (shared) => [delegationCheck(() => rules, shared)],
    identify: (base = localIdentity()) => delegatedIdentity({ base, reader, toolOf: rules.toolOf, app }),
    policyFile(stateDir, served) {
      const directory = join(stateDir, "workflow");
      const file = join(directory, "policy.cedar");
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      const only = served === undefined ? undefined : new Set(served);
      const { text } = emitPolicy(loaded, { app, served: only, argumentsElsewhere: true });
      writeFileSync(file, text, { mode: 0o600 });
      return file;
    },
  };
}

/** What a holder of a delegation has to know, and a gateway that accepts one from here. */
export function workflowFacts(workflow: WorkflowInForce | undefined): Record<string, unknown> {
  return workflow ? { gateway: workflow.keys.gateway, delegationKey: workflow.keys.publicKey } : {};
}

/** For the start-up message. */
export function workflowHelp(workflow: WorkflowInForce | undefined): string {
  if (!workflow) return "";
  const { app, keys } = workflow;
  return `

A workflow is in force for the callers of \`${app}\`: each call needs a delegation.

  portcullis lattice token mint AGENT --app ${app} > agent.token        for an agent with authority of its own
  portcullis lattice token hand-on agent.token OTHER > other.token      for one that it delegates to
  portcullis call TOOL '{}' --delegation other.token

  gateway  ${keys.gateway}
  key      ${keys.publicKey}  (for --trust-gateway of another gateway)`;
}

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

  fits(schema: JsonSchema, args: JsonObject): RuleAnswer {
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

interface EmitOptions {
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
