// One set of families from those of several processes that serve one port: counters and histograms are added, gauges
// follow the rule of their family.

import type { Across, Family, Point } from "./series.js";

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
