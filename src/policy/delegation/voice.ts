// The workflow's say in every decision: each hop of the chain must let this very call through, and the allow list of
// the agent at its end must have it.

import type { JsonObject } from "../../mcp/index.js";
import type { Intent } from "../intent.js";
import { deny, PERMIT, type PolicyInput, type CheckResult } from "../types.js";
import { type DelegationChain, MAX_USE_MS } from "./chain.js";
import { DelegationRefused } from "./refused.js";
import type { DelegationRules } from "./rules.js";
import { replayed, type SharedNonces, SpentNonces } from "./spent.js";

export function delegationCheck(
  rules: () => DelegationRules,
  shared?: SharedNonces,
  spent: SpentNonces = new SpentNonces(MAX_USE_MS),
): (proposed: PolicyInput, intent: Intent) => CheckResult | Promise<CheckResult> {
  return async (proposed, intent) => {
    const { principal, target } = proposed;
    const chain = principal.delegation;
    if (chain === undefined) {
      return deny("PolicyDeny", "workflow.identity", `\`${principal.agent}\` has no part in the workflow served here`);
    }
    if (target.type !== "Tool") {
      return deny("PolicyDeny", "workflow.scope", "the workflow delegates tools, and nothing else");
    }
    const now = rules();
    const capability = now.capabilityOf(target.name);
    if (capability === undefined || !chain.capabilities.has(capability)) return outside(chain, target.name);
    if (chain.expires <= Date.now()) {
      return deny("PolicyDeny", "delegation.expired", "the delegation has expired while the call was waiting");
    }
    if (chain.use !== undefined) {
      // What is tied to one call covers that call alone, and nothing that the tool calls in turn.
      const { tool = capability, args = intent.argumentsId } = chain.use;
      if (tool !== capability || args !== intent.argumentsId) {
        return deny("PolicyDeny", "delegation.binding", "the delegation token was spent on another call than this one");
      }
      try {
        const isFirst = spent.spend(chain.use.nonce, chain.use);
        // Remembered for longer than any clock would let it through.
        const id = `delegation ${chain.use.nonce}`;
        if (isFirst && shared && !(await shared.first(id, 2 * MAX_USE_MS))) throw replayed();
      } catch (error) {
        if (!(error instanceof DelegationRefused)) throw error;
        return deny("PolicyDeny", `delegation.${error.code}`, error.message);
      }
    }
    if (!(await now.takes(capability, proposed.arguments))) {
      return deny(
        "PolicyDeny",
        "workflow.scope",
        `\`${capability}\`, as the workflow knows it, takes no such arguments`,
      );
    }
    const refusedBy = await hopAgainst(now, chain, capability, proposed.arguments);
    if (refusedBy !== undefined) {
      return deny(
        "PolicyDeny",
        "workflow.scope",
        `what reached \`${chain.agent}\` of \`${target.name}\` does not include these arguments (${refusedBy})`,
      );
    }
    if (!(await now.allows(chain.agent, capability, proposed.arguments))) {
      return deny(
        "PolicyDeny",
        "workflow.allow",
        `the allow list of \`${chain.agent}\` has no such call of \`${target.name}\``,
      );
    }
    return PERMIT;
  };
}

function outside(chain: DelegationChain, tool: string): CheckResult {
  return deny("PolicyDeny", "workflow.scope", `\`${tool}\` was not delegated to \`${chain.agent}\``);
}

/** The first hop that does not let the call through. */
async function hopAgainst(
  rules: DelegationRules,
  chain: DelegationChain,
  capability: string,
  args: JsonObject,
): Promise<string | undefined> {
  for (const [i, hop] of chain.hops.entries()) {
    const from = chain.agents[i] as string;
    const narrowed = hop.arguments !== undefined && Object.hasOwn(hop.arguments, capability);
    const fits = !narrowed || (await rules.fits(hop.arguments?.[capability] as JsonObject | boolean, args));
    if (!fits || !(await rules.admits(from, hop.to, capability, args))) return `${from} → ${hop.to}`;
  }
  return undefined;
}
