// The Prometheus text format, version 0.0.4. OpenTelemetry's names are turned into Prometheus' by the usual rule: dots
// become underscores, the unit is the suffix, counters end in `_total`.

import { BOUNDS, type Family, type Point } from "./series.js";

export const PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const UNITS = { s: "_seconds", By: "_bytes", "": "" } as const;

/** Labels whose values say nothing about applications, tools, rules or callers. */
const PROCESS_LABELS: ReadonlySet<string> = new Set([
  "cpu.mode",
  "db.collection.name",
  "db.operation.name",
  "db.system.name",
  "error.type",
  "portcullis.answer",
  "portcullis.bound",
  "portcullis.signal",
  "portcullis.state",
  "portcullis.transport",
  "portcullis.worker",
]);

/** `processOnly` leaves out every series with a label that could name an application, a tool, a rule or a caller. */
export function renderPrometheus(families: readonly Family[], { processOnly = false } = {}): string {
  return (processOnly ? families.map(ofProcess) : families).map(renderFamily).join("");
}

function ofProcess(family: Family): Family {
  const points = family.points.filter(({ labels }) => labels.every(([name]) => PROCESS_LABELS.has(name)));
  return { ...family, points };
}

function renderFamily(family: Family): string {
  if (family.points.length === 0) return "";
  const name = family.name.replaceAll(".", "_") + UNITS[family.unit] + (family.type === "counter" ? "_total" : "");
  let out = `# HELP ${name} ${family.help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}\n# TYPE ${name} ${family.type}\n`;
  for (const point of family.points) out += point.histogram ? renderHistogram(name, point) : renderPoint(name, point);
  return out;
}

function renderPoint(name: string, point: Point): string {
  return `${name}${renderLabels(point.labels)} ${number(point.value)}\n`;
}

function renderHistogram(name: string, point: Point): string {
  const { counts, sum, count } = point.histogram as NonNullable<Point["histogram"]>;
  let out = "";
  let below = 0;
  for (let i = 0; i < BOUNDS.length; i++) {
    below += counts[i] as number;
    out += `${name}_bucket${renderLabels([...point.labels, ["le", number(BOUNDS[i] as number)]])} ${below}\n`;
  }
  out += `${name}_bucket${renderLabels([...point.labels, ["le", "+Inf"]])} ${count}\n`;
  return `${out}${name}_sum${renderLabels(point.labels)} ${number(sum)}\n${name}_count${renderLabels(point.labels)} ${count}\n`;
}

function renderLabels(labels: Point["labels"]): string {
  if (labels.length === 0) return "";
  return `{${labels.map(([name, value]) => `${name.replaceAll(".", "_")}="${escape(value)}"`).join(",")}}`;
}

function escape(value: string): string {
  return value.toWellFormed().replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

function number(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (value === Infinity) return "+Inf";
  return value === -Infinity ? "-Inf" : String(value);
}
