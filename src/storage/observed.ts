// Durations of the store's operations, by the part of the store that they concern.

import { StorageError } from "./errors.js";
import type { Engine } from "./sql.js";

export interface StoreOperation {
  readonly kind: Engine["kind"];
  readonly table: string;
  readonly operation: "read" | "write";
  /** Waits and retries included. */
  readonly seconds: number;
  /** Code of the error that ended it; "" when it succeeded. */
  readonly error: string;
}

export type ObserveStore = (operation: StoreOperation) => void;

/** The same engine, with `observe` called after each read and write. */
export function observed(engine: Engine, table: string, observe: ObserveStore | undefined): Engine {
  if (!observe) return engine;
  const timed = async <T>(operation: StoreOperation["operation"], work: () => Promise<T>): Promise<T> => {
    const startedAt = performance.now();
    let error = "";
    try {
      return await work();
    } catch (thrown) {
      error = thrown instanceof StorageError ? thrown.code : "error";
      throw thrown;
    } finally {
      observe({ kind: engine.kind, table, operation, seconds: (performance.now() - startedAt) / 1_000, error });
    }
  };
  return {
    kind: engine.kind,
    latestChange: engine.latestChange,
    pollMs: engine.pollMs,
    gatherMs: engine.gatherMs,
    get reconnectedAt() {
      return engine.reconnectedAt;
    },
    read: (work) => timed("read", () => engine.read(work)),
    write: (work) => timed("write", () => engine.write(work)),
    snapshot: (work) => engine.snapshot(work),
    listen: (heard, lost) => engine.listen(heard, lost),
    close: () => engine.close(),
  };
}
