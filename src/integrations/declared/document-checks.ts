// What can be known of a document before it is stored: whether its rules can be loaded, and whether its directories and
// commands could be used on this machine.

import {
  loadPolicy,
  PolicyInvalid,
  type PolicyProblem,
  type PolicySource,
  type ToolSummary,
} from "../../policy/index.js";
import type { ApplicationDocument } from "../../storage/index.js";
import { CoreSettingsError, coreChecks } from "../../tools/index.js";

/** Stands for the tools of the application, which are not known here; rules about tools are checked against it. */
const ANY_TOOL: ToolSummary = { name: "any.tool", server: "any", inputSchema: {} };

/** Everything that is wrong with the rules; what is only wrong with some tools is found by the gateway. */
export function rulesProblems(sources: readonly PolicySource[]): readonly PolicyProblem[] {
  try {
    loadPolicy(sources, [ANY_TOOL], { unknownTools: "warn" });
    return [];
  } catch (error) {
    if (error instanceof PolicyInvalid) return error.problems;
    throw error;
  }
}

export function sourcesOf(policies: Readonly<Record<string, string>>): PolicySource[] {
  return Object.entries(policies).map(([file, text]) => ({ file, text }));
}

export function unusableHere(app: string, { filesystem, linux }: ApplicationDocument): string | undefined {
  try {
    coreChecks({ id: app, filesystem, linux }, {});
    return undefined;
  } catch (error) {
    if (!(error instanceof CoreSettingsError)) throw error;
    return `on this machine core.filesystem and core.linux cannot be used: ${error.message}`;
  }
}
