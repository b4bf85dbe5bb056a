// What policy.yaml decides about a call of one of the host's tools. Nothing happens.

import { createHash } from "node:crypto";
import {
  decideCmdRun,
  decideFsRead,
  decideFsWrite,
  type HostDecision,
  type Policy,
  policyFor,
} from "../../host/index.js";
import type { ExplainedRule, PolicyDecision, PolicyRequest, PolicySet } from "../../policy/index.js";

const DECIDE: Readonly<Record<string, (policy: Policy, args: unknown) => HostDecision>> = {
  "fs.read": decideFsRead,
  "fs.write": decideFsWrite,
  "cmd.run": decideCmdRun,
};

/** Undefined where the host has no such tool. */
export function decideHostCall(policy: Policy, tool: string, args: unknown): HostDecision | undefined {
  return Object.hasOwn(DECIDE, tool) ? DECIDE[tool]?.(policy, args) : undefined;
}

export function withHostPolicy(set: PolicySet, policy: Policy): PolicySet {
  const decide = (request: PolicyRequest): PolicyDecision => denialOf(policy, request) ?? set.decide(request);
  return {
    ...set,
    hash: createHash("sha256").update(`${set.hash}\n${policy.hash}`).digest("hex"),
    decide,
    explain: (request) => ({
      decision: decide(request),
      rules: [...ruleOf(policy, request), ...set.explain(request).rules],
    }),
    outlook: (request) => set.outlook(request),
  };
}

function denialOf(policy: Policy, { agent, action, arguments: args }: PolicyRequest): PolicyDecision | undefined {
  const decision = decideHostCall(policyFor(policy, agent), action, args);
  if (decision === undefined || decision.effect === "permit") return undefined;
  const { rule, reason } = decision.denial;
  const rules = [{ id: rule, file: policy.file, line: 0 }];
  return { effect: "deny", rules, reason, approvers: [], obligations: [], errors: [] };
}

function ruleOf(policy: Policy, { agent, action, arguments: args }: PolicyRequest): ExplainedRule[] {
  const decision = decideHostCall(policyFor(policy, agent), action, args);
  if (decision === undefined) return [];
  const isPermitted = decision.effect === "permit";
  const text = isPermitted ? decision.rule : decision.denial.reason;
  return [
    {
      id: isPermitted ? decision.rule : decision.denial.rule,
      file: policy.file,
      line: 0,
      effect: isPermitted ? "permit" : "forbid",
      matched: true,
      decidedBy: { part: "rule", text, line: 0, column: 0 },
      values: [],
    },
  ];
}
