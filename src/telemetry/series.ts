// Families of series, and the numbers that they are made of.

export const OTHER = "other";
/** Label values longer than this are cut. */
export const MAX_LABEL_CHARS = 128;

export interface Point {
  /** OpenTelemetry attribute names with their values. */
  readonly labels: readonly (readonly [name: string, value: string])[];
  readonly value: number;
  readonly histogram?: HistogramValue;
}

export interface HistogramValue {
  /** One more than the bounds: the last counts what is above all of them. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** How a gauge of several worker processes becomes one; `each` keeps them apart under the label `portcullis.worker`. */
export type Across = "sum" | "max" | "min" | "each";

/** One metric with all its series, in OpenTelemetry's naming. */
export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** UCUM: `s`, `By`, or "" for a plain count. */
  readonly unit: "s" | "By" | "";
  /** For gauges; `sum` unless given. Counters and histograms are always added. */
  readonly across?: Across;
  readonly points: readonly Point[];
}

export interface SeriesCell {
  value: number;
}

/** A counter or gauge with at most one label. */
export class Series {
  readonly #cells = new Map<string, SeriesCell>();
  readonly #max: number;
  readonly #about: Omit<Family, "points">;
  readonly #label: string | undefined;

  constructor(about: Omit<Family, "points">, label?: string, max = 64) {
    this.#about = about;
    this.#label = label;
    this.#max = max;
    if (label === undefined) this.#cells.set("", { value: 0 });
  }
  add(by: number, label = ""): void {
    this.#cell(label).value += by;
  }
  inc(label = ""): void {
    this.#cell(label).value++;
  }
  set(value: number, label = ""): void {
    this.#cell(label).value = value;
  }
  family(): Family {
    const points = [...this.#cells].map(([label, cell]) => ({
      labels: this.#label === undefined ? [] : [[this.#label, label] as const],
      value: cell.value,
    }));
    return { ...this.#about, points };
  }
  #cell(label: string): SeriesCell {
    return this.#cells.get(label) ?? openCell(this.#cells, label, this.#max);
  }
}

export function openCell(cells: Map<string, SeriesCell>, label: string, max: number): SeriesCell {
  const name = cells.size < max ? label.slice(0, MAX_LABEL_CHARS) : OTHER;
  let cell = cells.get(name);
  if (!cell) cells.set(name, (cell = { value: 0 }));
  return cell;
}

/** Seconds. The convention's bounds begin at 0.01; a gateway wants to see below that as well. */
export const FINE_BOUNDS = [0.001, 0.002, 0.005] as const;
export const CONVENTION_BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;
export const BOUNDS: readonly number[] = [...FINE_BOUNDS, ...CONVENTION_BOUNDS];

export class Histogram implements HistogramValue {
  readonly counts: number[] = Array.from({ length: BOUNDS.length + 1 }, () => 0);
  sum = 0;
  count = 0;
  record(seconds: number): void {
    let i = 0;
    while (i < BOUNDS.length && seconds > (BOUNDS[i] as number)) i++;
    this.counts[i] = (this.counts[i] as number) + 1;
    this.sum += seconds;
    this.count++;
  }
}

/** A gauge without labels. */
export function gauge(name: string, help: string, unit: Family["unit"], value: number, across: Across = "sum"): Family {
  return { name, help, type: "gauge", unit, across, points: [{ labels: [], value }] };
}

/** Series of `other` that keep their further labels. */
const MAX_OTHER = 64;

type About = Pick<Family, "name" | "help">;

abstract class Labelled<T> {
  readonly #labels: readonly string[];
  readonly #max: number;
  readonly #cells = new Map<string, { readonly labels: Point["labels"]; readonly cell: T }>();

  constructor(labels: readonly string[], max: number) {
    this.#labels = labels;
    this.#max = max;
  }

  protected abstract create(): T;

  protected cell(values: readonly string[]): T {
    const key = values.join("\n");
    return this.#cells.get(key)?.cell ?? this.#open(key, values);
  }

  protected points(point: (cell: T) => Omit<Point, "labels">): Point[] {
    return [...this.#cells.values()].map(({ labels, cell }) => ({ labels, ...point(cell) }));
  }

  #open(key: string, values: readonly string[]): T {
    if (this.#cells.size >= this.#max + MAX_OTHER) return this.#cells.get(OTHER)?.cell ?? this.#add(OTHER, [OTHER]);
    if (this.#cells.size >= this.#max && values[0] !== OTHER) return this.cell([OTHER, ...values.slice(1)]);
    return this.#add(key, values);
  }

  #add(key: string, values: readonly string[]): T {
    const labels = this.#labels.flatMap((name, i): [string, string][] => {
      const value = values[i] ?? "";
      return value === "" ? [] : [[name, value.slice(0, MAX_LABEL_CHARS)]];
    });
    const cell = this.create();
    this.#cells.set(key, { labels, cell });
    return cell;
  }
}

export class LabelledCounter extends Labelled<{ value: number }> {
  readonly #about: About;

  constructor(about: About, labels: readonly string[], max: number) {
    super(labels, max);
    this.#about = about;
  }

  inc(...values: string[]): void {
    this.cell(values).value++;
  }

  family(): Family {
    return { ...this.#about, type: "counter", unit: "", points: this.points(({ value }) => ({ value })) };
  }

  protected override create(): { value: number } {
    return { value: 0 };
  }
}

/** Of durations. */
export class LabelledHistogram extends Labelled<Histogram> {
  readonly #about: About;

  constructor(about: About, labels: readonly string[], max: number) {
    super(labels, max);
    this.#about = about;
  }

  record(seconds: number, ...values: string[]): void {
    this.cell(values).record(seconds);
  }

  family(): Family {
    const points = this.points((histogram) => ({ value: histogram.count, histogram }));
    return { ...this.#about, type: "histogram", unit: "s", points };
  }

  protected override create(): Histogram {
    return new Histogram();
  }
}

export interface ProcessFamilies {
  /** Names the process in series that are kept apart. */
  readonly worker: string;
  readonly families: readonly Family[];
}

/** Series that are added up: what a process counted stays counted when the process has ended. */
export function countersOf(families: readonly Family[]): Family[] {
  return families.filter(({ type }) => type !== "gauge");
}

export function combineFamilies(processes: readonly ProcessFamilies[]): Family[] {
  const combined = new Map<string, { readonly about: Family; readonly points: Map<string, Point> }>();
  for (const { worker, families } of processes) {
    for (const family of families) {
      let found = combined.get(family.name);
      if (!found) combined.set(family.name, (found = { about: family, points: new Map() }));
      const across = family.type === "gauge" ? (family.across ?? "sum") : "sum";
      for (const point of family.points) addPoint(found.points, point, across, worker);
    }
  }
  return [...combined.values()].map(({ about, points }) => ({ ...about, points: [...points.values()] }));
}

function addPoint(points: Map<string, Point>, point: Point, across: Across, worker: string): void {
  const labels = across === "each" ? [...point.labels, ["portcullis.worker", worker] as const] : point.labels;
  const key = JSON.stringify(labels);
  const before = points.get(key);
  points.set(key, before ? merge(before, point, across) : { ...point, labels });
}

function merge(a: Point, b: Point, across: Across): Point {
  if (a.histogram && b.histogram) {
    const other = b.histogram;
    const counts = a.histogram.counts.map((count, i) => count + (other.counts[i] ?? 0));
    const histogram = { counts, sum: a.histogram.sum + other.sum, count: a.histogram.count + other.count };
    return { ...a, value: histogram.count, histogram };
  }
  switch (across) {
    case "max":
      return { ...a, value: Math.max(a.value, b.value) };
    case "min":
      return { ...a, value: Math.min(a.value, b.value) };
    case "sum":
    case "each":
      return { ...a, value: a.value + b.value };
  }
}

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
