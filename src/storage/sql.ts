// What can go wrong with a store, by a stable code.

import type { Page, PageRequest } from "./types.js";

export type StorageCode =
  /** Not reachable, or no answer in time. Nothing was written. */
  | "STORAGE_UNAVAILABLE"
  /** The connection broke while the commit was under way, and nothing could be learnt about it in time. */
  | "STORAGE_UNCERTAIN"
  /** What was given does not fit, or an id is taken. */
  | "STORAGE_INVALID"
  | "STORAGE_FULL"
  /** The store was created by a newer version of this program, or is not a store of it. */
  | "STORAGE_VERSION"
  /** A sealed value that cannot be opened, or a key that cannot be had. */
  | "STORAGE_SEAL";

export class StorageError extends Error {
  readonly code: StorageCode;
  constructor(code: StorageCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "StorageError";
    this.code = code;
  }
}

export type SqlValue = string | number | null | Uint8Array;
export type Row = Readonly<Record<string, SqlValue>>;

export interface Sql {
  /** Runs one statement and answers with its rows. */
  all(text: string, values?: readonly SqlValue[]): Promise<Row[]>;
}

/** A change to announce; it is numbered when the transaction ends. */
export interface SqlNote {
  readonly topic: string;
  readonly action: string;
  readonly app: string;
  readonly name: string;
  readonly by: string;
}

export interface Engine {
  readonly kind: "sqlite" | "postgres";
  /** `work` may be run again when the store was away for a moment: it must do nothing but read. */
  read<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
  /**
   * One transaction that happens once or not at all. `work` may be run again after a rollback: apart from its
   * statements it must have no effect.
   */
  write<T>(work: (sql: Sql, note: (change: SqlNote) => void) => Promise<T>): Promise<T>;
  /** All statements see the store at one moment; writers do not wait for it. Not run again. */
  snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
  /**
   * Statement whose `seq` is the number of the last change; every change committed before it began has its number then,
   * unless a client stalls that holds the lock of the numbering. Its `incarnation` is that of the store.
   */
  readonly latestChange: string;
  /**
   * Expression whose value differs once the store was put back, also in place and with the connections intact; null
   * while it is being put back.
   */
  readonly incarnation: string;
  /** Calls back when there may be news, sooner than polling would find it. `lost` when news may have been missed. */
  listen(onChange: () => void, onReconnect: () => void): Promise<() => Promise<void>>;
  /** When a lost connection to the server was made again, by the monotonic clock; counts up with each time. */
  readonly reconnectedAt: number;
  /** How often to poll when no notification arrives. */
  readonly pollMs: number;
  /** Changes that follow each other within this time are read together. */
  readonly gatherMs: number;
  close(): Promise<void>;
}

/** Replicas that are further behind than this read everything again. */
export const KEPT_CHANGES = 10_000;
export const PRUNE_EVERY = 100;

export interface Backoff {
  /** Waits; false when the deadline would pass first. */
  pause(): Promise<boolean>;
  /** Until the deadline, and never less than what one answer takes. */
  readonly leftMs: number;
}

const FIRST_MS = 5;
const MOST_MS = 500;
const LEAST_LEFT_MS = 100;

export function backoff(withinMs: number): Backoff {
  const deadline = performance.now() + withinMs;
  let next = FIRST_MS;
  return {
    async pause() {
      const left = deadline - performance.now();
      if (left < FIRST_MS) return false;
      const ms = Math.min(left, next * (0.5 + Math.random()));
      next = Math.min(MOST_MS, next * 2);
      await sleep(ms);
      return true;
    },
    get leftMs() {
      return Math.max(LEAST_LEFT_MS, Math.ceil(deadline - performance.now()));
    },
  };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

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
