import type { CapabilityGrant, Delegation, RuleEvidence, Violation, Workflow } from "../workflow/model.js";

/** What every drawing shows. */
export interface Picture {
  readonly nodes: readonly PictureNode[];
  readonly edges: readonly PictureEdge[];
}

export interface PictureNode {
  readonly name: string;
  readonly isRoot: boolean;
  /** It is where something arrives that must not. */
  readonly isOffending: boolean;
  readonly capabilities: number;
}

export interface PictureEdge {
  readonly from: number;
  readonly to: number;
  readonly label: string;
  /** A violation runs over it. */
  readonly isMarked: boolean;
}

const MAX_LABEL = 40;

export function pictureOf(workflow: Workflow, violations: readonly Violation[]): Picture {
  const offending = new Set(violations.map((violation) => violation.agent));
  const marked = new Set(violations.flatMap(delegationsOf));
  const index = new Map(workflow.agents.map((agent, i) => [agent.name, i]));
  return {
    nodes: workflow.agents.map(({ name, isRoot, holds }) => ({
      name,
      isRoot,
      isOffending: offending.has(name),
      capabilities: holds.length,
    })),
    edges: workflow.delegations.map((delegation, i) => ({
      from: index.get(delegation.from) ?? -1,
      to: index.get(delegation.to) ?? -1,
      label: shorten(narrowing(delegation)),
      isMarked: marked.has(i),
    })),
  };
}

function narrowing({ only, arguments: narrowed }: Delegation): string {
  const names = (only ?? []).map((name) => (narrowed?.has(name) === true ? `${name}(…)` : name));
  const others = [...(narrowed?.keys() ?? [])].filter((name) => only === undefined || !only.includes(name));
  return [...names, ...(only === undefined ? others.map((name) => `${name}(…)`) : [])].join(", ");
}

export function shorten(text: string, most = MAX_LABEL): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** Without characters that move a cursor or turn a line round: drawings are looked at in terminals, too. */
export function printable(text: string): string {
  return text.replaceAll(/[\r\n]+/g, " ").replaceAll(/[\p{Cc}\p{Bidi_Control}]/gu, "�");
}

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
