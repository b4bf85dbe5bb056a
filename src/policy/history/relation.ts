// Rows of values with the time each last held, oldest first: what a monitor remembers. Rows that leave the window are
// dropped, so memory is bounded by the window, and finding a row costs the same however long the history is.

import { integerOf } from "./value-key.js";

export interface PastRow {
  readonly values: readonly string[];
  /** Of the latest event at which the row held: its time, its number, and where it is on record. */
  at: number;
  point: number;
  ref: number;
}

export interface Bucket {
  readonly rows: Set<PastRow>;
  /** By column, for those that are summed. */
  readonly sums: bigint[];
}

interface Index {
  readonly columns: readonly number[];
  readonly buckets: Map<string, Bucket>;
}

/** Counts the rows of all relations of one monitor. */
export interface RowBudget {
  rows: number;
  readonly max: number;
}

export class HistoryFull extends Error {
  constructor(max: number) {
    super(`history holds more than ${max} values: shorten the windows of the rules, or narrow what they compare`);
    this.name = "HistoryFull";
  }
}

export class Relation {
  readonly width: number;
  readonly #windowMs: number;
  readonly #budget: RowBudget;
  readonly #rows = new Map<string, PastRow>();
  readonly #indexes: Index[] = [];
  readonly #summed: number[] = [];

  constructor(width: number, windowMs: number, budget: RowBudget) {
    this.width = width;
    this.#windowMs = windowMs;
    this.#budget = budget;
  }

  get size(): number {
    return this.#rows.size;
  }

  /** The number of an index over these columns; to be asked for before there are rows. */
  indexOver(columns: readonly number[]): number {
    const name = columns.join();
    const found = this.#indexes.findIndex((each) => each.columns.join() === name);
    return found === -1 ? this.#indexes.push({ columns, buckets: new Map() }) - 1 : found;
  }

  sumOf(column: number): number {
    const found = this.#summed.indexOf(column);
    return found === -1 ? this.#summed.push(column) - 1 : found;
  }

  put(values: readonly string[], at: number, point: number, ref: number): void {
    const key = rowKey(values);
    const row = this.#rows.get(key);
    if (row) {
      // INVARIANT: rows are in the order of their times, so that the oldest are found first.
      this.#rows.delete(key);
      this.#rows.set(key, row);
      row.at = at;
      row.point = point;
      row.ref = ref;
      return;
    }
    if (this.#budget.rows >= this.#budget.max) throw new HistoryFull(this.#budget.max);
    this.#budget.rows++;
    const added: PastRow = { values, at, point, ref };
    this.#rows.set(key, added);
    for (const index of this.#indexes) this.#addTo(index, added);
  }

  #addTo(index: Index, row: PastRow): void {
    const key = rowKey(index.columns.map((column) => row.values[column] as string));
    let bucket = index.buckets.get(key);
    if (!bucket) {
      bucket = { rows: new Set(), sums: this.#summed.map(() => 0n) };
      index.buckets.set(key, bucket);
    }
    bucket.rows.add(row);
    for (const [at, column] of this.#summed.entries())
      bucket.sums[at]! += integerOf(row.values[column] as string) ?? 0n;
  }

  /** Drops what has left the window. */
  expire(now: number): void {
    const oldest = now - this.#windowMs;
    for (const [key, row] of this.#rows) {
      if (row.at >= oldest) return;
      this.#rows.delete(key);
      this.#budget.rows--;
      for (const index of this.#indexes) this.#removeFrom(index, row);
    }
  }

  #removeFrom({ columns, buckets }: Index, row: PastRow): void {
    const key = rowKey(columns.map((column) => row.values[column] as string));
    const bucket = buckets.get(key);
    if (!bucket) return;
    bucket.rows.delete(row);
    if (bucket.rows.size === 0) {
      buckets.delete(key);
      return;
    }
    for (const [at, column] of this.#summed.entries())
      bucket.sums[at]! -= integerOf(row.values[column] as string) ?? 0n;
  }

  get(values: readonly string[]): PastRow | undefined {
    return this.#rows.get(rowKey(values));
  }

  bucket(index: number, values: readonly string[]): Bucket | undefined {
    return this.#indexes[index]?.buckets.get(rowKey(values));
  }

  all(): IterableIterator<PastRow> {
    return this.#rows.values();
  }

  /** For a snapshot. */
  save(): SavedRow[] {
    return [...this.#rows.values()].map(({ values, at, point, ref }) => [values, at, point, ref]);
  }

  load(rows: readonly SavedRow[]): void {
    for (const [values, at, point, ref] of rows) this.put(values, at, point, ref);
  }
}

export type SavedRow = readonly [values: readonly string[], at: number, point: number, ref: number];

export function rowKey(values: readonly string[]): string {
  if (values.length === 1) return values[0] as string;
  let key = "";
  for (const value of values) key += `${value.length}:${value}`;
  return key;
}
