// What a process reports about itself on the admin port, and one report over several processes that share the port.

import { combineFamilies, type Family } from "../telemetry/index.js";
import type { ComponentState } from "./readiness.js";

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
