// The gate: everything that decides, with safe defaults, and a policy that is replaced as a whole.

import { type ApprovalLimits, type Approvals, DEFAULT_APPROVAL_LIMITS, MemoryApprovals } from "./approvals.js";
import { loadPolicy, noPolicy } from "./cedar/load.js";
import type { PolicySet, ToolSummary } from "./cedar/types.js";
import { type Check, chargeDenial, type Decision, decide, type GateParts } from "./decide.js";
import type { InformationFlow } from "./flow/flow.js";
import { CallbackRunner, type Guardrail } from "./guardrails.js";
import type { Halts } from "./halts.js";
import { CallHistory } from "./history/calls.js";
import type { Intent } from "./intent.js";
import { type Limit, Limits, type SharedLimits } from "./limits.js";
import type { CallTarget, CheckResult, PolicyInput, Principal } from "./types.js";

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
  approvalLimits?: Partial<ApprovalLimits>;
  checks?: readonly Check[];
  /** Information flow: what conversations have read, where the application has labels. */
  flow?: InformationFlow;
  /** Past calls, for rules over them; begins with the process unless given. */
  history?: CallHistory;
  /** What an operator has halted. */
  halts?: Pick<Halts, "check">;
  /** Decide and record, but enforce nothing of the policy. */
  observe?: boolean;
}

export interface Gate {
  /** `waited`: this very call waited for its approval and is decided once more; the limits counted it before. */
  decide(input: PolicyInput, intent: Intent, waited?: boolean): Decision | Promise<Decision>;
  /** A denial from outside the gate (no such tool, invalid arguments): it counts for the caller's limits. */
  chargeDenial(
    about: { principal: Principal; target: Pick<CallTarget, "name"> },
    denial: CheckResult,
  ): Promise<Decision>;
  /** Counts a message that is not decided, such as `initialize`, against the caller's limits; a denial when it is over. */
  count(principal: Principal, method: string): CheckResult | undefined | Promise<CheckResult | undefined>;
  readonly policy: PolicySet;
  /** Calls already being decided keep the set they began with. */
  swap(policy: PolicySet): void;
  readonly approvals: Approvals;
  readonly guardrails: CallbackRunner;
  readonly flow: InformationFlow | undefined;
  readonly observe: boolean;
}

export function createGate(options: GateOptions = {}): Gate {
  let policy = readPolicy(options);
  const guardrails = new CallbackRunner();
  for (const guardrail of options.guardrails ?? []) guardrails.register(guardrail);
  const approvals = options.approvals ?? new MemoryApprovals();
  const observe = options.observe ?? false;
  const history = options.history ?? new CallHistory();
  history.use(policy);
  const parts: GateParts = {
    policy: () => policy,
    guardrails,
    limits: new Limits(options.limits, undefined, options.shared),
    approvals,
    approvalLimits: { ...DEFAULT_APPROVAL_LIMITS, ...options.approvalLimits },
    checks: options.checks ?? [],
    flow: options.flow,
    history,
    halts: options.halts,
    observe,
  };
  return {
    decide: (input, intent, waited) => decide(parts, input, intent, waited),
    chargeDenial: (about, denial) => chargeDenial(parts, policy, about, denial),
    count: (principal, method) => countMessage(parts.limits, principal, method),
    get policy() {
      return policy;
    },
    swap(next) {
      policy = next;
      history.use(next);
    },
    approvals,
    guardrails,
    flow: options.flow,
    observe,
  };
}

/** A message that no tool is behind, as limits see it. */
function countMessage(
  limits: Limits,
  principal: Principal,
  method: string,
): CheckResult | undefined | Promise<CheckResult | undefined> {
  const over = (taken: Awaited<ReturnType<Limits["take"]>>): CheckResult | undefined => {
    if ("denied" in taken) return taken.denied;
    taken.release();
    return undefined;
  };
  const taken = limits.take(principal, { name: method });
  return taken instanceof Promise ? taken.then(over) : over(taken);
}

function readPolicy(options: GateOptions): PolicySet {
  if (options.policy === undefined) return noPolicy;
  if (typeof options.policy === "string") {
    return loadPolicy([{ file: "policy.cedar", text: options.policy }], options.tools ?? []);
  }
  return options.policy;
}
