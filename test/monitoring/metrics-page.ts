// docs/metrics.md as a table: what is documented of each metric.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Family } from "../../src/telemetry/index.js";

export const ROOT = resolve(import.meta.dirname, "../..");

export interface DocumentedMetric {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  /** How series of several workers become one. */
  readonly workers: string;
  readonly meaning: string;
}

const UNITS = { s: "_seconds", By: "_bytes", "": "" } as const;

/** The name in Prometheus' text format. */
export function nameOf({ name, type, unit }: Family): string {
  return name.replaceAll(".", "_") + UNITS[unit] + (type === "counter" ? "_total" : "");
}

export function describedBy(family: Family): DocumentedMetric {
  const labels = new Set(family.points.flatMap((point) => point.labels.map(([name]) => name.replaceAll(".", "_"))));
  const workers = family.type === "gauge" ? (family.across ?? "sum") : "sum";
  return { name: nameOf(family), type: family.type, labels: [...labels], workers, meaning: family.help };
}

export function rowOf({ name, type, labels, workers, meaning }: DocumentedMetric): string {
  return `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(", ")} | ${workers} | ${meaning} |`;
}

export function documentedMetrics(): DocumentedMetric[] {
  const text = readFileSync(join(ROOT, "docs/metrics.md"), "utf8");
  return [...text.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*) \| (\w+) \| (.+) \|$/gm)].map(
    ([, name = "", type = "", labels = "", workers = "", meaning = ""]) => ({
      name,
      type,
      labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = ""]) => label),
      workers,
      meaning,
    }),
  );
}
