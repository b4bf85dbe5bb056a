// Schemas in a workflow that nothing can be checked by. The analysis takes what it cannot decide as a violation, and
// the gate refuses what it cannot check; whoever wrote them should hear why.

import type { ValueType, Workflow } from "../../lattice/index.js";
import { Schema, SchemaError } from "../../mcp/server/index.js";

const MAX_SCHEMAS = 20_000;
const MAX_TOLD = 20;

/** One sentence for each, the first ones only. */
export function unusableSchemas(workflow: Workflow): readonly string[] {
  const told: string[] = [];
  let [looked, more] = [0, 0];
  const seen = new Set<unknown>();
  const look = (type: ValueType, whose: () => string): void => {
    if (type.is !== "schema") {
      for (const part of type.of) look(part, whose);
      return;
    }
    if (typeof type.schema === "boolean" || seen.has(type.schema) || looked >= MAX_SCHEMAS) return;
    seen.add(type.schema);
    looked++;
    const problem = problemOf(type.schema);
    if (problem === undefined) return;
    if (told.length < MAX_TOLD) told.push(`${whose()} cannot be checked: ${problem}`);
    else more++;
  };
  for (const [name, capability] of workflow.capabilities) {
    look(capability.arguments, () => `the arguments of \`${name}\``);
  }
  for (const { name, allow, line } of workflow.agents) {
    for (const [capability, type] of allow ?? []) {
      look(type, () => `line ${line}: what \`allow\` of \`${name}\` says of \`${capability}\``);
    }
  }
  for (const { from, to, arguments: narrowed, line } of workflow.delegations) {
    for (const [capability, type] of narrowed ?? []) {
      look(type, () => `line ${line}: how the delegation from \`${from}\` to \`${to}\` narrows \`${capability}\``);
    }
  }
  return more === 0 ? told : [...told, `and ${more} more schemas that cannot be checked`];
}

function problemOf(schema: unknown): string | undefined {
  try {
    void new Schema(schema as ConstructorParameters<typeof Schema>[0]);
    return undefined;
  } catch (error) {
    if (error instanceof SchemaError) return error.message;
    throw error;
  }
}
