import type { Delegation, Violation, Workflow } from "../workflow/model.js";
import { delegationsOf } from "./story.js";

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
