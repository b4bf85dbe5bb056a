import type { CapabilityGrant, RuleEvidence, Violation } from "../workflow/model.js";

/** A violation as a sentence or two that a person can act on. */
export function tell(violation: Violation): string {
  if (violation.kind === "allow") {
    const { agent, grant, isNamed } = violation;
    const can = grant.isProved ? "can" : "might";
    return `\`${agent}\` ${can} come to hold \`${grant.capability}\`${isNamed ? beyond(grant) : ", which its allow list does not name"}, by ${way(grant.agents)}${doubt(grant)}`;
  }
  const parts = violation.terms.map((term) => tellTerm(violation.agent, term));
  return `\`${violation.agent}\` breaks the rule \`${violation.rule}\`: it ${parts.join("; and it ")}`;
}

function beyond({ argument }: CapabilityGrant): string {
  return argument === undefined
    ? ""
    : ` with arguments that its allow list does not have: ${JSON.stringify(argument.value)}`;
}

/** What could not be decided is taken as a violation, and is told as what it is. */
function doubt({ isProved, why }: CapabilityGrant): string {
  return isProved ? "" : ` (not proved: ${why ?? "it could not be decided"}; it is therefore taken as a violation)`;
}

function tellTerm(agent: string, { agents, grant }: RuleEvidence): string {
  const holder = agents.at(-1) ?? agent;
  const holds = grant.isProved ? "holds" : "might hold";
  const reached = agents.length > 1 ? `reaches \`${holder}\` by ${way(agents)}, which ${holds}` : holds;
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

/** Whether every part of a violation is shown by something that arrives. */
export function isProved(violation: Violation): boolean {
  if (violation.kind === "allow") return violation.grant.isProved;
  return violation.terms.every(({ grant }) => grant.isProved);
}
