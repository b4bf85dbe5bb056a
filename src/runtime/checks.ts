// What a call would meet on its way, offline: the schema, then policy, then the guardrail, in the order of a real call.
// Of a guardrail's own code nothing is known here, only whether a tool may run without one.

import type { Explanation, PolicyDecision, PolicyRequest, ToolSummary } from "../policy/index.js";
import { compileDefinition, type Problem } from "../mcp/server/index.js";

/** A tool as the offline commands know it. */
export interface ServedTool extends ToolSummary {
  /** Undefined where nobody said: an answer of tools/list does not tell. */
  readonly noGuardrailRequired?: boolean;
}

export interface CheckedTools extends Explanation {
  /** Who refuses the call before or after policy has its say. */
  readonly refusedBy?: "schema" | "guardrail";
  /** What policy alone would have said. */
  readonly policy: PolicyDecision;
  readonly problems: readonly Problem[];
}

/** What is wrong with the arguments of a call to a tool that is known. */
export async function schemaProblems(
  tools: readonly ServedTool[],
  { action, resource, arguments: args }: PolicyRequest,
): Promise<readonly Problem[]> {
  const tool = resource.type === "Tool" ? tools.find((each) => each.name === action) : undefined;
  if (!tool) return [];
  try {
    const { name, inputSchema } = tool;
    const validation = await compileDefinition({ name, inputSchema }).validate(args);
    return validation.ok ? [] : validation.problems;
  } catch (error) {
    return [
      { path: "", message: `could not be validated: ${(error as Error).message}`, expected: "a schema in order" },
    ];
  }
}

export function voiced(
  tools: readonly ServedTool[],
  request: PolicyRequest,
  explanation: Explanation,
  problems: readonly Problem[],
): CheckedTools {
  const { decision } = explanation;
  const name = request.action;
  const [first] = problems;
  if (first) {
    const where = first.path ? `\`${first.path}\` ` : "";
    const reason = `arguments of \`${name}\`: ${where}${first.message}`;
    return { ...explanation, decision: denied("schema", reason), refusedBy: "schema", policy: decision, problems };
  }
  const tool = request.resource.type === "Tool" ? tools.find((each) => each.name === name) : undefined;
  if (decision.effect === "permit" && tool?.noGuardrailRequired === false) {
    const reason = `\`${name}\` has no guardrail callback, and nobody declared that it needs none`;
    return {
      ...explanation,
      decision: denied("guardrail.missing", reason),
      refusedBy: "guardrail",
      policy: decision,
      problems,
    };
  }
  return { ...explanation, policy: decision, problems };
}

function denied(rule: string, reason: string): PolicyDecision {
  const rules = [{ id: rule, file: "", line: 0 }];
  return { effect: "deny", rules, reason, approvers: [], obligations: [], errors: [] };
}
