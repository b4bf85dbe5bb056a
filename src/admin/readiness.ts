// Whether this process can serve calls, component by component. The operator is told which one is not usable and why;
// a caller without a credential learns only the result.

import type { JsonObject } from "../mcp/index.js";

/** The state of one component. A `problem` means that calls cannot be served; a `warning` is for the operator. */
export interface ComponentState {
  readonly problem?: string | undefined;
  readonly warning?: string | undefined;
}

/** Checks by component name. INVARIANT: a check returns at once and does not throw. */
export type ComponentChecks = Readonly<Record<string, () => ComponentState>>;

const MAX_TEXT_CHARS = 500;

export interface Readiness {
  readonly isReady: boolean;
  /** For the operator: `{ ready, reasons, components }`. */
  readonly report: JsonObject;
}

export function evaluateReadiness(states: Readonly<Record<string, ComponentState>>): Readiness {
  const components: Record<string, JsonObject> = {};
  const reasons: string[] = [];
  for (const [name, { problem, warning }] of Object.entries(states)) {
    if (problem !== undefined) reasons.push(problem.slice(0, MAX_TEXT_CHARS));
    components[name] = {
      ready: problem === undefined,
      ...(problem === undefined ? {} : { reason: problem.slice(0, MAX_TEXT_CHARS) }),
      ...(warning === undefined ? {} : { warning: warning.slice(0, MAX_TEXT_CHARS) }),
    };
  }
  const isReady = reasons.length === 0;
  return { isReady, report: { ready: isReady, reasons, components } };
}
