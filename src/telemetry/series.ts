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
