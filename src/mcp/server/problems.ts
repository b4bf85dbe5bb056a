// Problems on their way to a caller.

import { Fault } from "../index.js";
import { unescapePointer } from "../../schema/index.js";
import type { CompiledDefinition } from "./tool.js";
import type { Problem, Tool, Validation } from "./types.js";
import type { JsonObject } from "../index.js";

/** What `tools/validate` answers. */
export interface ValidationReport {
  tool: string;
  valid: boolean;
  problems: Problem[];
}

export async function validateArguments(
  tool: Pick<Tool | CompiledDefinition, "definition" | "validate">,
  args: JsonObject,
): Promise<ValidationReport> {
  const validation = await tool.validate(args);
  return { tool: tool.definition.name, valid: validation.ok, problems: validation.ok ? [] : validation.problems };
}

/** The error object for arguments that do not fit: the first problem decides its words, all of them travel. */
export function validationFault(tool: string, { problems }: Validation & { ok: false }): Fault {
  const [first = { path: "", message: "do not fit the schema" }] = problems;
  const field = fieldOf(first.path);
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
  const reason = `${field === undefined ? "the arguments" : `\`${field}\``} ${first.message}${more}`;
  const suggestions = [...new Set(problems.map(({ suggestion }) => suggestion).filter((text) => text !== undefined))];
  return new Fault("ValidationError", reason, {
    ...(field === undefined ? {} : { field }),
    suggestions,
    extra: { tool_name: tool, problems },
  });
}

/** `/filters/0/name` → `filters.0.name`, as people name fields. */
function fieldOf(path: string): string | undefined {
  return path === "" ? undefined : path.slice(1).split("/").map(unescapePointer).join(".");
}
