// Where an application's definition files live, and how much of everything there may be.

import { createHash } from "node:crypto";
import { join } from "node:path";

export interface StateSettings {
  /** Absolute path of this replica's copy of the application's own bare repository; made on first use. See `repositoryDirectory`. */
  readonly repository: string;
  readonly limits?: Partial<StateLimits>;
}

export interface StateLimits {
  readonly maxFileBytes: number;
  readonly maxFiles: number;
  /** Of the packs in the store: the files with their history. */
  readonly maxRepositoryBytes: number;
  /** A writer of another process that gives no sign of life for so long has lost its turn. */
  readonly lockTimeoutMs: number;
  /** How long a write may wait for its turn among the living. */
  readonly maxWaitMs: number;
  /** Compare-and-sets of one write. */
  readonly maxAttempts: number;
  /** Writes of one process that may wait for the same repository. */
  readonly maxWaiting: number;
  /** After so many changes the newest packs in the store are made one. */
  readonly mergeEvery: number;
  /** One call of git. */
  readonly gitTimeoutMs: number;
  readonly maxKeyChars: number;
  readonly maxValueBytes: number;
  readonly maxTtlMs: number;
}

export const DEFAULT_STATE_LIMITS: StateLimits = {
  maxFileBytes: 1_000_000,
  maxFiles: 10_000,
  maxRepositoryBytes: 1_000_000_000,
  lockTimeoutMs: 500,
  maxWaitMs: 20_000,
  maxAttempts: 50,
  maxWaiting: 64,
  mergeEvery: 32,
  gitTimeoutMs: 20_000,
  maxKeyChars: 512,
  maxValueBytes: 256_000,
  maxTtlMs: 366 * 24 * 60 * 60_000,
};

/** One directory for each application, whatever its name looks like and however the file system compares names. */
export function repositoryDirectory(root: string, application: string): string {
  const readable = application
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .slice(0, 40);
  const unique = createHash("sha256").update(application).digest("hex").slice(0, 24);
  return join(root, `${readable}-${unique}.git`);
}
