import type { Violation, Workflow } from "../workflow/model.js";
import { violationKey } from "../workflow/model.js";
import { delegationsOf, isProved, tell } from "./story.js";

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
