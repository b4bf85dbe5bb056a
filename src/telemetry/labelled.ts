// Counters and histograms with several labels. The number of series is bounded: what comes after the bound is counted
// with `other` as its first label. An empty value leaves its label out.

import { type Family, Histogram, MAX_LABEL_CHARS, OTHER, type Point } from "./series.js";

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
