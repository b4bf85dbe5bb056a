// What a process reports about itself on the admin port: whether it can serve calls, component by component, its metrics
// and servers; and one report over several processes that share the port.

import type { JsonObject } from "../mcp/index.js";
import { combineFamilies, type Family, gauge } from "../telemetry/index.js";

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

/** What of a report is wanted: health is asked for often, so it carries nothing else. */
export type ReportPart = "health" | "metrics" | "servers";

export interface ProcessReport {
  /** Every started process answers. */
  readonly isAlive: boolean;
  readonly isStarted: boolean;
  readonly components: Readonly<Record<string, ComponentState>>;
  /** Applications that are not served as they should be. */
  readonly refused: readonly RefusedApplication[];
  /** With `metrics`. */
  readonly families: readonly Family[];
  /** With `servers`. */
  readonly servers: readonly object[];
}

export interface RefusedApplication {
  readonly app: string;
  readonly reason: string;
}

/** How many applications a report names. */
export const MAX_REFUSED = 100;

/** Reports by the name of their process. A component is usable when it is in every process. */
export function combineReports(reports: ReadonlyMap<string, ProcessReport>): ProcessReport {
  const all = [...reports];
  const values = [...reports.values()];
  const components: Record<string, ComponentState> = {};
  for (const name of new Set(values.flatMap((report) => Object.keys(report.components)))) {
    const join = (kind: keyof ComponentState): string | undefined => {
      const texts = all.flatMap(([worker, report]) => {
        const text = report.components[name]?.[kind];
        return text === undefined ? [] : [`worker ${worker}: ${text}`];
      });
      return texts.length === 0 ? undefined : texts.join("; ");
    };
    components[name] = { problem: join("problem"), warning: join("warning") };
  }
  const refused = new Map(values.flatMap((report) => report.refused.map((each) => [each.app, each])));
  return {
    isAlive: values.every((report) => report.isAlive),
    isStarted: values.every((report) => report.isStarted),
    components,
    refused: [...refused.values()].slice(0, MAX_REFUSED),
    families: combineFamilies(all.map(([worker, { families }]) => ({ worker, families }))),
    servers: values.flatMap((report) => report.servers),
  };
}

/** Readiness as metrics: all of it, and each component. */
export function readinessFamilies(components: ProcessReport["components"]): Family[] {
  const states = Object.entries(components);
  const isReady = states.every(([, { problem }]) => problem === undefined);
  return [
    gauge("portcullis.ready", "1 while calls can be served (`/readyz`), otherwise 0", "", isReady ? 1 : 0, "min"),
    {
      name: "portcullis.component.ready",
      help: "1 while a component that calls depend on is usable, otherwise 0",
      type: "gauge",
      unit: "",
      across: "min",
      points: states.map(([name, { problem }]) => ({
        labels: [["portcullis.component", name]],
        value: problem === undefined ? 1 : 0,
      })),
    },
  ];
}
