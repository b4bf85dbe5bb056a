// The history of one application's definition files as all replicas share it. What arrives here can only reach one
// application's.

import { Fault, STORE_OUTAGE } from "../../mcp/index.js";
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
    state: () => told(store.state(app)),
    push: (from, head, pack, by) => told(store.push(app, from, head, pack, by)),
    claim: (id, by, ms) => told(store.claim(app, id, by, ms)),
    packs: (id, after) => told(store.packs(app, id, after)),
    part: (pack, part) => told(store.part(app, pack, part)),
    merge: (id, packs, merged) => told(store.merge(app, id, packs, merged)),
  };
}

/** What a store says when it cannot, as callers may hear it. */
async function told<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw error instanceof StorageError ? faultOf(error) : error;
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
      return new Fault("Unavailable", "the store went away during the change, which may or may not have happened", {
        suggestions: ["read the file again and decide anew"],
        cause: error,
      });
    default:
      return error;
  }
}
