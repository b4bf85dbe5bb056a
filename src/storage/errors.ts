// What can go wrong with a store, by a stable code.

export type StorageCode =
  /** Not reachable, or no answer in time. Nothing was written. */
  | "STORAGE_UNAVAILABLE"
  /** The connection broke while the commit was under way, and nothing could be learnt about it in time. */
  | "STORAGE_UNCERTAIN"
  /** What was given does not fit, or an id is taken. */
  | "STORAGE_INVALID"
  | "STORAGE_FULL"
  /** The store was made by a newer version of this program, or is no store of it. */
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
