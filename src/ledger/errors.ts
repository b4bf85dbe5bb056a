/** Why the ledger could not take a record. */
export type UnavailableReason =
  | "disk_full"
  | "read_only"
  | "no_permission"
  | "io_error"
  | "stalled"
  | "queue_full"
  | "entry_too_large"
  | "entry_invalid"
  | "taken_over"
  | "history_changed"
  | "closed";

/** A record could not be made durable. Nothing that depended on it may run. */
export class LedgerUnavailable extends Error {
  readonly code = "AUDIT_FAILURE";
  readonly reason: UnavailableReason;
  readonly remedy: string;

  constructor(reason: UnavailableReason, what: string, remedy: string, cause?: unknown) {
    super(`${what}; ${remedy}`, cause === undefined ? undefined : { cause });
    this.name = "LedgerUnavailable";
    this.reason = reason;
    this.remedy = remedy;
  }
}

/** The ledger does not start, because starting would build on something damaged, shortened or foreign. */
export class LedgerRefused extends Error {
  readonly code = "LEDGER_REFUSED";
  readonly remedy: string;

  constructor(what: string, remedy: string, cause?: unknown) {
    super(`${what}; ${remedy}`, cause === undefined ? undefined : { cause });
    this.name = "LedgerRefused";
    this.remedy = remedy;
  }
}

/** Another process writes this ledger. */
export class LedgerLocked extends Error {
  readonly code = "LEDGER_LOCKED";

  constructor(message: string) {
    super(message);
    this.name = "LedgerLocked";
  }
}

/** Something asked of a ledger's files cannot be answered: no such record, not covered yet, not a ledger. */
export class LedgerReadError extends Error {
  readonly code = "LEDGER_READ";

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "LedgerReadError";
  }
}

const KNOWN_ERRNO: Record<string, { reason: UnavailableReason; problem: string; remedy: string }> = {
  ENOSPC: { reason: "disk_full", problem: "the disk is full", remedy: "free space on the disk that holds the ledger" },
  EDQUOT: { reason: "disk_full", problem: "the disk quota is used up", remedy: "raise the quota or free space" },
  EFBIG: {
    reason: "disk_full",
    problem: "the file size limit is reached",
    remedy: "raise the file size limit (ulimit -f) or lower maxSegmentBytes",
  },
  EROFS: { reason: "read_only", problem: "the disk is read-only", remedy: "mount it writable again" },
  EACCES: {
    reason: "no_permission",
    problem: "permission is denied",
    remedy: "give the user that runs portcullis write access to the ledger directory",
  },
  EPERM: {
    reason: "no_permission",
    problem: "the operation is not permitted",
    remedy: "give the user that runs portcullis write access to the ledger directory (and check for immutable files)",
  },
};

export function errnoOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : "";
}

/** `LedgerUnavailable` for an error of the operating system, with the remedy. */
export function ledgerUnavailable(error: unknown, path: string): LedgerUnavailable {
  if (error instanceof LedgerUnavailable) return error;
  const code = errnoOf(error);
  const known = KNOWN_ERRNO[code];
  if (known !== undefined) {
    return new LedgerUnavailable(
      known.reason,
      `cannot write the ledger at ${path}: ${known.problem} (${code})`,
      `${known.remedy}; recording resumes by itself`,
      error,
    );
  }
  const problem = error instanceof Error ? error.message : String(error);
  return new LedgerUnavailable(
    "io_error",
    `cannot write the ledger at ${path}: ${problem}`,
    "check the disk and the system log; recording resumes by itself when writing works again",
    error,
  );
}
