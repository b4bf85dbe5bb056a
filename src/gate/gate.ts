// The gate as others hold it: parts with safe defaults, and a policy that can be swapped whole.

import { type Approvals, MemoryApprovals } from "./approvals.js";
import { type Decision, decide, type GateParts, type Voice } from "./decide.js";
import { CallbackRunner, type Guardrail } from "./guardrails.js";
import type { Intent } from "./intent.js";
import { type Limit, Limits, type SharedLimits } from "./limits.js";
import { loadPolicy, noPolicy, type PolicySet, type ToolSummary } from "./policy/index.js";
import type { Proposed } from "./types.js";

export interface GateOptions {
  /** Cedar text, or a set already loaded. Nothing means that everything is denied. */
  policy?: string | PolicySet;
  /** The tools a policy text is checked against. */
  tools?: readonly ToolSummary[];
  guardrails?: readonly Guardrail[];
  limits?: readonly Limit[];
  /** Where several replicas count together. */
  shared?: SharedLimits;
  approvals?: Approvals;
  voices?: readonly Voice[];
  /** Decide and record, but enforce nothing of the policy. */
  observe?: boolean;
}

export interface Gate {
  decide(proposed: Proposed, intent: Intent, inputResponses?: unknown): Decision | Promise<Decision>;
  readonly policy: PolicySet;
  /** Calls already being decided keep the set they began with. */
  swap(policy: PolicySet): void;
  readonly approvals: Approvals;
  readonly guardrails: CallbackRunner;
  readonly observe: boolean;
}

export function createGate(options: GateOptions = {}): Gate {
  let policy = readPolicy(options);
  const guardrails = new CallbackRunner();
  for (const guardrail of options.guardrails ?? []) guardrails.register(guardrail);
  const approvals = options.approvals ?? new MemoryApprovals();
  const observe = options.observe ?? false;
  const parts: GateParts = {
    policy: () => policy,
    guardrails,
    limits: new Limits(options.limits, undefined, options.shared),
    approvals,
    voices: options.voices ?? [],
    observe,
  };
  return {
    decide: (proposed, intent, inputResponses) => decide(parts, proposed, intent, inputResponses),
    get policy() {
      return policy;
    },
    swap(next) {
      policy = next;
    },
    approvals,
    guardrails,
    observe,
  };
}

function readPolicy(options: GateOptions): PolicySet {
  if (options.policy === undefined) return noPolicy;
  if (typeof options.policy === "string") {
    return loadPolicy([{ file: "policy.cedar", text: options.policy }], options.tools ?? []);
  }
  return options.policy;
}
