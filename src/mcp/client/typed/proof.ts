// What a call is made with. A proof is for one agent, one tool and the arguments the guardrails saw; it is spent once
// and goes stale. Types cannot see a second use or a late one, so the run time does.

import type { Life } from "./life.js";
import { noToken } from "./refusals.js";

export class CallProof {
  readonly #owner: Life;
  readonly #tool: string;
  /** Canonical: what happens to the caller's own object later does not matter. */
  readonly #argumentsText: string;
  readonly #expires: number;
  #spent = false;

  private constructor(owner: Life, tool: string, argumentsText: string) {
    this.#owner = owner;
    this.#tool = tool;
    this.#argumentsText = argumentsText;
    this.#expires = performance.now() + owner.tokenTtlMs;
  }

  /** INVARIANT: called after the callback runner minted its token for the same, or for a tool that needs none. */
  static mint(owner: Life, tool: string, argumentsText: string): CallProof {
    return new CallProof(owner, tool, argumentsText);
  }

  /** Gives the arguments, once. A proof that is not this agent's, or not for this tool, is left as it is. */
  static spend(proof: unknown, agent: Life, tool: string): string {
    const refuse = (problem: string): Error => noToken(agent.id, tool, problem);
    if (proof === undefined || proof === null) throw refuse("there is no guardrail token");
    if (typeof proof !== "object" || !(#spent in proof)) throw refuse("what was given is no guardrail token");
    if (proof.#owner !== agent) throw refuse(`the token is of agent \`${proof.#owner.id}\``);
    if (proof.#tool !== tool) throw refuse(`the token is for \`${proof.#tool}\``);
    if (proof.#spent) throw refuse("the token is already spent");
    if (performance.now() > proof.#expires) {
      throw refuse(`the token is older than ${agent.tokenTtlMs} ms; ask the guardrails again`);
    }
    proof.#spent = true;
    return proof.#argumentsText;
  }
}
