import { type Violation, violationKey, type Workflow } from "../workflow/model.js";
import { delegationsOf, isProved, type PictureNode, pictureOf, printable, tell } from "./picture.js";

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
    agents: nodes.map(({ name, isRoot, isOffending, capabilities }) => ({
      name,
      root: isRoot,
      offending: isOffending,
      capabilities,
    })),
    delegations: edges.map(({ from, to, isMarked, label }) => ({
      from: nodes[from]?.name,
      to: nodes[to]?.name,
      marked: isMarked,
      // What it is narrowed to; empty where everything is handed on.
      narrowed: label,
    })),
    violations: violations.slice(0, most).map((violation) => ({ ...violation, message: tell(violation) })),
    ...(violations.length > most ? { leftOut: violations.length - most } : {}),
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}

export interface SarifOptions {
  /** The workflow file as a relative address, as a code host shows it. */
  readonly uri: string;
  readonly version?: string;
  /** So many results; how many were left out is among the properties of the run. Default: all. */
  readonly most?: number;
}

const ALLOW_RULE = "allow-list";

/** SARIF 2.1.0: one result for each violation, at the line of the agent, with the delegations as a code flow. */
export function toSarif(
  workflow: Workflow,
  violations: readonly Violation[],
  { uri, version, most = Infinity }: SarifOptions,
): string {
  const lines = new Map(workflow.agents.map((agent) => [agent.name, agent.line]));
  const location = (line: number | undefined, text: string) => ({
    physicalLocation: { artifactLocation: { uri }, region: { startLine: line ?? 1 } },
    message: { text },
  });
  const ruleIds = [ALLOW_RULE, ...workflow.rules.map((rule) => `rule/${rule.name}`)];
  const ruleIndex = new Map(ruleIds.map((id, i) => [id, i]));
  const leftOut = violations.length > most ? { properties: { leftOut: violations.length - most } } : {};
  const results = violations.slice(0, most).map((violation) => {
    const ruleId = violation.kind === "allow" ? ALLOW_RULE : `rule/${violation.rule}`;
    const steps = delegationsOf(violation).map((number) => {
      const delegation = workflow.delegations[number];
      return { location: location(delegation?.line, `${delegation?.from} delegates to ${delegation?.to}`) };
    });
    return {
      ruleId,
      ruleIndex: ruleIndex.get(ruleId),
      level: "error",
      message: { text: tell(violation) },
      locations: [location(lines.get(violation.agent), violation.agent)],
      properties: { isProved: isProved(violation) },
      partialFingerprints: { "latticeViolation/v1": violationKey(violation) },
      ...(steps.length === 0 ? {} : { codeFlows: [{ threadFlows: [{ locations: steps }] }] }),
    };
  });
  const rules = [
    { id: ALLOW_RULE, shortDescription: { text: "An agent can come to hold a capability outside its allow list" } },
    ...workflow.rules.map(({ name, never }) => ({
      id: `rule/${name}`,
      shortDescription: { text: `No agent holds together: ${never.map((term) => term.name).join(", ")}` },
    })),
  ];
  const driver = { name: "portcullis-lattice", ...(version === undefined ? {} : { version }), rules };
  const log = {
    $schema: "https://json.schemastore.org/sarif-2.1.0.json",
    version: "2.1.0",
    runs: [{ tool: { driver }, results, columnKind: "utf16CodeUnits", ...leftOut }],
  };
  return `${JSON.stringify(log, null, 2)}\n`;
}
