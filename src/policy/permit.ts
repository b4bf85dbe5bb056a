// `Permit` authorizes exactly one execution: of one intent, at one binding, with one definition, under one policy. It is
// spent once and expires soon.

import { Fault } from "../mcp/index.js";
import type { Obligation } from "./cedar/types.js";
import { GuardrailProof } from "./guardrails.js";
import type { Intent } from "./intent.js";
import type { CallTarget, Principal } from "./types.js";

export interface PermitGrant {
  readonly intent: Intent;
  readonly principal: Principal;
  readonly method: string;
  readonly target: CallTarget;
  readonly policyHash: string;
  readonly obligations: readonly Obligation[];
}

const DEFAULT_TTL_MS = 30_000;

export class Permit {
  readonly #grant: PermitGrant;
  readonly #expires: number;
  #spent = false;
  private constructor(grant: PermitGrant, ttlMs: number) {
    this.#grant = grant;
    this.#expires = performance.now() + ttlMs;
  }

  /** INVARIANT: only with a guardrail token for this agent and this intent; only `decide` calls it. */
  static mint(grant: PermitGrant, token: GuardrailProof, ttlMs: number = DEFAULT_TTL_MS): Permit {
    const agent = `${grant.principal.app}/${grant.principal.agent}`;
    if (!GuardrailProof.spend(token, agent, grant.intent.id)) {
      throw new Fault(
        "GuardrailBlocked",
        "the guardrail token is spent, forged, or for another agent or other arguments",
        {
          rule: "guardrail.token",
        },
      );
    }
    return new Permit(grant, ttlMs);
  }

  /** Gives the grant once. Types cannot see a second use, so the run time does. */
  static spend(permit: unknown): PermitGrant {
    if (typeof permit !== "object" || permit === null || !(#spent in permit)) {
      throw new Fault("PolicyDeny", "not a valid permit", { rule: "permit.forged" });
    }
    if (permit.#spent) throw new Fault("PolicyDeny", "this permit was already spent", { rule: "permit.spent" });
    permit.#spent = true;
    if (performance.now() > permit.#expires) {
      throw new Fault("PolicyDeny", "this permit has expired; decide again", { rule: "permit.stale" });
    }
    return permit.#grant;
  }
}
