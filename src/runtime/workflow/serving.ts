// A workflow in force: who calls is known by their delegation, what they may call was proved before, and the gate holds
// every call against the chain that it came by.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  ChainReader,
  type DelegationKeys,
  delegationCheck,
  type SharedNonces,
  type Check,
} from "../../policy/index.js";
import { delegatedIdentity, type Identify, localIdentity } from "../../auth/index.js";
import { visible } from "../../telemetry/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { emitPolicy } from "./grants.js";
import { ensureDelegationKeys } from "./keys.js";
import { type LoadedWorkflow, loadWorkflow } from "./load.js";
import { workflowRules } from "./rules.js";

export interface WorkflowInForce {
  /** The application whose callers are its agents. */
  readonly app: string;
  readonly keys: DelegationKeys;
  /** `shared` remembers which tokens were spent, for all replicas. */
  voices(shared?: SharedNonces): readonly Check[];
  /** Wraps how callers are known otherwise. */
  identify(base?: Identify): Identify;
  /** Writes the policy and says where: for these tools, or for all that the workflow knows. */
  policyFile(stateDir: string, served?: Iterable<string>): string;
}

export interface WorkflowOptions {
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
  const { room, violations } = loaded;
  if (violations.length > 0 && options.despiteViolations !== true) {
    const told = violations.slice(0, 5).map((violation) => `  ${visible(room.tell(violation))}`);
    const more = violations.length > told.length ? [`  and ${violations.length - told.length} more`] : [];
    throw new CliError(
      [`${options.file} is not served, because it breaks its own rules:`, ...told, ...more].join("\n"),
      EXIT.deny,
      `\`portcullis lattice check ${options.file}\` shows all of them`,
    );
  }
  return inForce(loaded, { ...options, keys: ensureDelegationKeys(options.stateDir) });
}

export interface ForceOptions {
  readonly keys: DelegationKeys;
  readonly app?: string;
  readonly trusted?: readonly string[];
}

export function inForce(loaded: LoadedWorkflow, { keys, app = "local", trusted }: ForceOptions): WorkflowInForce {
  const rules = workflowRules(loaded.workflow, loaded.hash);
  const reader = new ChainReader({ keys, rules: () => rules, trusted });
  return {
    app,
    keys,
    voices: (shared) => [delegationCheck(() => rules, shared)],
    identify: (base = localIdentity()) => delegatedIdentity({ base, reader, toolOf: rules.toolOf, app }),
    policyFile(stateDir, served) {
      const folder = join(stateDir, "workflow");
      const file = join(folder, "policy.cedar");
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const only = served === undefined ? undefined : new Set(served);
      const { text } = emitPolicy(loaded, { app, served: only, argumentsElsewhere: true });
      writeFileSync(file, text, { mode: 0o600 });
      return file;
    },
  };
}

/** What whoever spends a delegation here has to know, and whoever accepts one from here. */
export function workflowFacts(workflow: WorkflowInForce | undefined): Record<string, unknown> {
  return workflow ? { gateway: workflow.keys.gateway, delegationKey: workflow.keys.publicKey } : {};
}

/** For the person who started it. */
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
