// The history of one application's definition files as all replicas share it. What arrives here can only reach one
// application's.

import { Fault, type JsonValue, STORE_OUTAGE } from "../../mcp/index.js";
import {
  type PackBytes,
  type RepositoryTable,
  StorageError,
  type StoredPack,
  type StoredRepository,
} from "../../storage/index.js";

/** See `Repositories` of the store, whose methods these are, for this application. */
export interface StoredHistory {
  state(): Promise<{ readonly store: string; readonly repository?: StoredRepository }>;
  push(
    from: StoredRepository | undefined,
    head: string,
    pack: PackBytes,
    by: string,
  ): Promise<StoredRepository | undefined>;
  claim(id: string, by: string, ms: number): Promise<boolean>;
  packs(id: string, after: number): Promise<StoredPack[]>;
  part(pack: StoredPack, part: number): Promise<Uint8Array | undefined>;
  merge(id: string, packs: readonly StoredPack[], merged: PackBytes): Promise<boolean>;
}

export function historyOf(store: RepositoryTable, app: string): StoredHistory {
  return {
    state: () => answered(store.state(app)),
    push: (from, head, pack, by) => answered(store.push(app, from, head, pack, by)),
    claim: (id, by, ms) => answered(store.claim(app, id, by, ms)),
    packs: (id, after) => answered(store.packs(app, id, after)),
    part: (pack, part) => answered(store.part(app, pack, part)),
    merge: (id, packs, merged) => answered(store.merge(app, id, packs, merged)),
  };
}

/** `answered` turns a failure of the store into a fault that a caller may see. */
async function answered<T>(work: Promise<T>, toFault: typeof faultOf = faultOf): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw error instanceof StorageError ? toFault(error) : error;
  }
}

function faultOf(error: StorageError): unknown {
  switch (error.code) {
    case "STORAGE_UNAVAILABLE":
      return new Fault("Unavailable", "the store cannot be reached; nothing was changed", {
        cause: error,
        extra: STORE_OUTAGE,
      });
    case "STORAGE_UNCERTAIN":
      return new Fault("Unavailable", "the store failed during the change, which may or may not have happened", {
        suggestions: ["read again what was changed, then decide"],
        cause: error,
      });
    default:
      return error;
  }
}

function valueFaultOf(error: StorageError): unknown {
  switch (error.code) {
    case "STORAGE_FULL":
      return new Fault("ToolExecution", "the application has as many runtime values as it may have", {
        rule: "maxValues",
        suggestions: ["delete some, or give them a time to live"],
      });
    case "STORAGE_INVALID":
      return new Fault("ValidationError", "the store does not accept this key or value", { rule: "runtimeValueKey" });
    default:
      return faultOf(error);
  }
}

/** A runtime value: small, with a version to compare and a time to live. */
export interface RuntimeValue {
  readonly value: JsonValue;
  readonly version: number;
  /** Milliseconds since 1970. */
  readonly expiresAt?: number;
}

export interface RuntimeValues {
  get(key: string): Promise<RuntimeValue | undefined>;
  /** Undefined when `version` is given and is no longer the stored one (0: there is none). */
  set(
    key: string,
    value: JsonValue,
    options?: { readonly ttlMs?: number; readonly version?: number },
  ): Promise<RuntimeValue | undefined>;
  /** False when there is none, or its version is another. */
  remove(key: string, version?: number): Promise<boolean>;
}

type ForApplication<M> = M extends (...args: infer A) => infer R ? (app: string, ...args: A) => R : never;

/** The same methods, with the application's name before the other arguments: what the store offers. */
type ValuesByApplication = { readonly [K in keyof RuntimeValues]: ForApplication<RuntimeValues[K]> };

export function applicationValues(store: ValuesByApplication, app: string): RuntimeValues {
  return {
    get: (key) => answered(store.get(app, key), valueFaultOf),
    set: (key, value, options) => answered(store.set(app, key, value, options), valueFaultOf),
    remove: (key, version) => answered(store.remove(app, key, version), valueFaultOf),
  };
}
