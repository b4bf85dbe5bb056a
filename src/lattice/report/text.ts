import type { Violation, Workflow } from "../workflow/model.js";
import { type PictureNode, pictureOf, printable } from "./picture.js";
import { tell } from "./story.js";

/** A Mermaid flowchart; agents are numbered because their names may be anything. */
export function toMermaid(workflow: Workflow, violations: readonly Violation[] = []): string {
  const { nodes, edges } = pictureOf(workflow, violations);
  const text = (value: string): string =>
    printable(value).replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
  const lines = ["flowchart LR"];
  for (const [i, node] of nodes.entries()) {
    const shape = node.isRoot ? `(["${text(node.name)}"])` : `["${text(node.name)}"]`;
    lines.push(`  a${i}${shape}${classOf(node)}`);
  }
  const marked: number[] = [];
  for (const [i, { from, to, label, isMarked }] of edges.entries()) {
    lines.push(`  a${from} ${isMarked ? "==>" : "-->"}${label === "" ? "" : `|"${text(label)}"|`} a${to}`);
    if (isMarked) marked.push(i);
  }
  lines.push("  classDef root fill:#e8f0fe,stroke:#1a56db,color:#111");
  lines.push("  classDef offending fill:#fde8e8,stroke:#c81e1e,stroke-width:2px,color:#111");
  if (marked.length > 0) lines.push(`  linkStyle ${marked.join(",")} stroke:#c81e1e,stroke-width:3px`);
  return `${lines.join("\n")}\n`;
}

function classOf({ isOffending, isRoot }: PictureNode): string {
  return isOffending ? ":::offending" : isRoot ? ":::root" : "";
}

/** A Graphviz digraph. */
export function toDot(workflow: Workflow, violations: readonly Violation[] = []): string {
  const { nodes, edges } = pictureOf(workflow, violations);
  const quote = (value: string): string => `"${printable(value).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
  const lines = [
    "digraph workflow {",
    "  rankdir=LR;",
    '  node [shape=box, style="rounded,filled", fillcolor="#f8fafc"];',
  ];
  for (const [i, { name, isOffending, isRoot }] of nodes.entries()) {
    const look = isOffending
      ? ', color="#c81e1e", fillcolor="#fde8e8", penwidth=2'
      : isRoot
        ? ', fillcolor="#e8f0fe"'
        : "";
    lines.push(`  a${i} [label=${quote(name)}${look}];`);
  }
  for (const { from, to, label, isMarked } of edges) {
    const look = [
      ...(label === "" ? [] : [`label=${quote(label)}`]),
      ...(isMarked ? ['color="#c81e1e"', "penwidth=3"] : []),
    ];
    lines.push(`  a${from} -> a${to}${look.length === 0 ? "" : ` [${look.join(", ")}]`};`);
  }
  return `${[...lines, "}"].join("\n")}\n`;
}

/** Everything a program needs to check the answer without us; of the violations `most`, and how many were left out. */
export function toJson(
  workflow: Workflow,
  violations: readonly Violation[] = [],
  { most = Infinity }: { readonly most?: number } = {},
): string {
  const { nodes, edges } = pictureOf(workflow, violations);
  const report = {
    verdict: violations.length === 0 ? "clean" : "violations",
    agents: nodes.map(({ name, isRoot, isOffending }) => ({ name, root: isRoot, offending: isOffending })),
    delegations: edges.map(({ from, to, isMarked }) => ({
      from: nodes[from]?.name,
      to: nodes[to]?.name,
      marked: isMarked,
    })),
    violations: violations.slice(0, most).map((violation) => ({ ...violation, message: tell(violation) })),
    ...(violations.length > most ? { leftOut: violations.length - most } : {}),
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}
