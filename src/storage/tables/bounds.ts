// What may go into the store, and how much of it comes out at once.

import { StorageError } from "../errors.js";
import type { Row } from "../sql.js";
import type { Page, PageRequest } from "../types.js";

const DEFAULT_PAGE = 100;
const MAX_PAGE = 1_000;
export const MAX_BATCH = 1_000;

/** A name: not empty, not too long, nothing in it that cannot be shown. */
export function checkName(what: string, text: string, max = 256): string {
  if (text.length === 0 || text.length > max) {
    throw new StorageError("STORAGE_INVALID", `${what} has ${text.length} characters; 1 to ${max} are allowed`);
  }
  if (/[\p{Cc}\p{Cs}]/u.test(text)) {
    throw new StorageError("STORAGE_INVALID", `${what} holds a control character; leave it out`);
  }
  return text;
}

export function checkSize(what: string, bytes: number, max: number): void {
  if (bytes <= max) return;
  throw new StorageError("STORAGE_INVALID", `${what} has ${bytes} bytes; at most ${max} are allowed`);
}

/** As JSON text within a bound. */
export function jsonColumn(what: string, value: unknown, max: number): string {
  const text = JSON.stringify(value);
  checkSize(what, Buffer.byteLength(text), max);
  return text;
}

export function pageLimit(page: PageRequest | undefined): number {
  const limit = page?.limit ?? DEFAULT_PAGE;
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_PAGE) return limit;
  throw new StorageError("STORAGE_INVALID", `a page has 1 to ${MAX_PAGE} entries, not ${limit}`);
}

/** Statements ask for one row more than the page holds: so it is known whether there are more. */
export function asPage<T>(
  rows: readonly Row[],
  limit: number,
  read: (row: Row) => T,
  name: (row: Row) => string,
): Page<T> {
  const items = rows.slice(0, limit).map(read);
  const last = rows[limit - 1];
  return rows.length > limit && last ? { items, next: name(last) } : { items };
}

export function checkBatch(what: string, size: number): void {
  if (size > MAX_BATCH)
    throw new StorageError("STORAGE_INVALID", `${size} ${what} at once; at most ${MAX_BATCH} are allowed`);
}

export function optionalColumn<K extends string, T>(name: K, value: T | null | undefined): { [P in K]?: T } {
  return (value === null || value === undefined ? {} : { [name]: value }) as { [P in K]?: T };
}
