// The gate's own policy set for the host: it lets the gate ask policy.yaml about the three tools, and carries its hash.
// Written out rather than as Cedar: one rule that never changes is not worth Cedar's start.

import type { PolicyDecision, PolicyRequest, PolicySet } from "../gate/index.js";

const RULE = { id: "host", file: "host", line: 1 };

/** Records name policy.yaml, which decides. */
export function hostPolicySet(hash: string, tools: ReadonlySet<string>): PolicySet {
  const covers = ({ resource }: Pick<PolicyRequest, "resource">): boolean =>
    resource.type === "Tool" && tools.has(resource.id);
  const decide = (request: PolicyRequest): PolicyDecision => {
    const nothingMore = { approvers: [], obligations: [], errors: [] };
    return covers(request)
      ? { effect: "permit", rules: [RULE], reason: "", ...nothingMore }
      : { effect: "deny", rules: [], reason: "the host has three tools and nothing else", ...nothingMore };
  };
  return {
    hash,
    rules: [],
    warnings: [],
    usesWasmFallbackFor: [],
    decide,
    explain: (request) => ({ decision: decide(request), rules: [] }),
    outlook: (request) => (covers(request) ? "possible" : "never"),
  };
}
