import type { Grant, RuleEvidence, Violation } from "../workflow/model.js";

/** A violation as a sentence or two that a person can act on. */
export function tell(violation: Violation): string {
  if (violation.kind === "allow") {
    const { agent, grant } = violation;
    return `\`${agent}\` can come to hold \`${grant.capability}\`${beyond(grant)}, by ${way(grant.agents)}${doubt(grant)}`;
  }
  const parts = violation.terms.map((term) => tellTerm(violation.agent, term));
  return `\`${violation.agent}\` breaks the rule \`${violation.rule}\`: it ${parts.join("; and it ")}`;
}

function beyond({ argument }: Grant): string {
  return argument === undefined
    ? ""
    : ` with arguments that its allow list does not have: ${JSON.stringify(argument.value)}`;
}

function doubt({ isProved }: Grant): string {
  return isProved ? "" : " (not proved: it could not be decided, and is therefore taken as a violation)";
}

function tellTerm(agent: string, { agents, grant }: RuleEvidence): string {
  const holder = agents.at(-1) ?? agent;
  const reached = agents.length > 1 ? `reaches \`${holder}\` by ${way(agents)}, which holds` : "holds";
  return `${reached} \`${grant.capability}\`, by ${way(grant.agents)}${doubt(grant)}`;
}

function way(agents: readonly string[]): string {
  return agents.length === 1 ? `its own authority` : agents.map((name) => `\`${name}\``).join(" → ");
}

/** All delegations that a violation runs over. */
export function delegationsOf(violation: Violation): readonly number[] {
  if (violation.kind === "allow") return violation.grant.delegations;
  return violation.terms.flatMap((term) => [...term.delegations, ...term.grant.delegations]);
}
