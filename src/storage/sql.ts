// What both backends understand: statements with `$1`, `$2`… for values and `@now` for the store's clock, and two ways
// to run them.

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
   * unless a client stalls that holds the lock of the numbering.
   */
  readonly latestChange: string;
  /** Calls back when there may be news, sooner than polling would find it. `lost` when news may have been missed. */
  listen(heard: () => void, lost: () => void): Promise<() => Promise<void>>;
  /** When a lost connection to the server was made again, by the monotonic clock; counts up with each time. */
  readonly reconnectedAt: number;
  /** How often to look when nothing was heard. */
  readonly pollMs: number;
  /** Changes that follow each other within this time are read together. */
  readonly gatherMs: number;
  close(): Promise<void>;
}

/** Replicas that are further behind than this read everything again. */
export const KEPT_CHANGES = 10_000;
export const PRUNE_EVERY = 100;
