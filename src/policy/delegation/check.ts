// The workflow's check in every decision: each hop of the chain must permit this very call, the allow list of the agent at
// its end must have it, and a token is used once.

import type { JsonObject } from "../../mcp/index.js";
import type { Intent } from "../intent.js";
import { type CheckResult, deny, PERMIT, type PolicyInput } from "../types.js";
import { DelegationRefused } from "./block.js";
import { type DelegationChain, type DelegationRules, MAX_USE_MS } from "./chain.js";

export function delegationCheck(
  rules: () => DelegationRules,
  shared?: SharedNonces,
  spent: SpentNonces = new SpentNonces(MAX_USE_MS),
): (input: PolicyInput, intent: Intent) => CheckResult | Promise<CheckResult> {
  return async (input, intent) => {
    const { principal, target } = input;
    const chain = principal.delegation;
    if (chain === undefined) {
      return deny("PolicyDeny", "workflow.identity", `\`${principal.agent}\` is not part of the workflow served here`);
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
    if (!(await now.takes(capability, input.arguments))) {
      return deny(
        "PolicyDeny",
        "workflow.scope",
        `\`${capability}\`, as the workflow knows it, takes no such arguments`,
      );
    }
    const refusedBy = await hopAgainst(now, chain, capability, input.arguments);
    if (refusedBy !== undefined) {
      return deny(
        "PolicyDeny",
        "workflow.scope",
        `what reached \`${chain.agent}\` of \`${target.name}\` does not include these arguments (${refusedBy})`,
      );
    }
    if (!(await now.allows(chain.agent, capability, input.arguments))) {
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

const MAX_REMEMBERED = 100_000;

/**
 * Nonces of requests that were let through. Each is remembered for at least `lifeMs`, which no request outlives: two
 * generations, and the older one is dropped as a whole. When it is full nothing is forgotten early: what cannot be
 * remembered is denied.
 */
export class SpentNonces {
  readonly #lifeMs: number;
  readonly #max: number;
  #now = new Map<string, object>();
  #before = new Map<string, object>();
  #since = -Infinity;

  constructor(lifeMs: number, max = MAX_REMEMBERED) {
    this.#lifeMs = lifeMs;
    this.#max = max;
  }

  get size(): number {
    return this.#now.size + this.#before.size;
  }

  /**
   * `request` stands for one request: what its tool calls in turn counts as the same use. True for the first of them:
   * who shares the memory with others asks them then.
   */
  spend(nonce: string, request: object, now = Date.now()): boolean {
    if (now - this.#since > this.#lifeMs) {
      this.#before = now - this.#since > 2 * this.#lifeMs ? new Map() : this.#now;
      this.#now = new Map();
      this.#since = now;
    }
    const known = this.#now.get(nonce) ?? this.#before.get(nonce);
    if (known === request) return false;
    if (known !== undefined) throw replayed();
    if (this.size >= this.#max) {
      throw new DelegationRefused(
        "too-many",
        `more than ${this.#max} delegated calls in a short time; wait and try again`,
      );
    }
    this.#now.set(nonce, request);
    return true;
  }
}

export function replayed(): DelegationRefused {
  return new DelegationRefused("replayed", "this delegation token was used before; spend a new one for every call");
}

/** Remembers for every gateway that could be given the same token. */
export interface SharedNonces {
  first(id: string, ttlMs: number): Promise<boolean>;
}
