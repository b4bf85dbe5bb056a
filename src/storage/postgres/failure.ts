// Which failures pass by themselves, and in what words the others are told.

import { StorageError } from "../errors.js";

interface Failure {
  readonly code?: string;
  readonly message?: string;
}

/** The server ended a transaction whose client said nothing for too long, and its connection. */
const STALLED = "25P03";

/** The server is starting, stopping, full, or had to choose a victim. */
const PASSING = new Set([STALLED, "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03", "25006"]);

/** The line is gone, or there never was one. */
const OF_THE_LINE = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EAI_AGAIN",
  "ENOENT",
]);

export function isPassing(error: unknown): boolean {
  const { code, message = "" } = error as Failure;
  if (code !== undefined && (PASSING.has(code) || code.startsWith("08") || OF_THE_LINE.has(code))) return true;
  return /connection terminated|timeout exceeded when trying to connect|query read timeout|not queryable/i.test(
    message,
  );
}

/** Nothing more can be said on this connection. */
export function isBroken(error: unknown): boolean {
  const { code } = error as Failure;
  // A code of five characters is the server's own answer; the line still stands, unless it says that it is leaving.
  if (code === undefined || !/^[0-9A-Z]{5}$/.test(code)) return true;
  return code === STALLED || code.startsWith("57P") || code.startsWith("08");
}

export function explained(error: unknown): unknown {
  if (error instanceof StorageError) return error;
  const { code, message = "unknown" } = error as Failure;
  if (code === undefined) return error;
  if (code.startsWith("23")) return new StorageError("STORAGE_INVALID", `the store refuses this: ${message}`, error);
  return new StorageError("STORAGE_UNAVAILABLE", `PostgreSQL failed: ${message} (${code})`, error);
}
