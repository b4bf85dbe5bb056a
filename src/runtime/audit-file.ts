// The host's plain audit log: one JSON line a request, rotated by size. The ledger is what can be proved; this is what
// people grep.

import { appendFileSync, existsSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";

export interface AuditFileOptions {
  /** The file is rotated before it grows past this. */
  readonly maxBytes: number;
  /** Rotated files that are kept. */
  readonly maxFiles: number;
}

export function auditFile(path: string, { maxBytes, maxFiles }: AuditFileOptions): (line: object) => void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  return (line) => {
    const text = Buffer.from(`${JSON.stringify(line)}\n`);
    // Asked each time: several hosts may write to one file.
    const bytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    if (bytes > 0 && bytes + text.length > maxBytes) rotate(path, maxFiles);
    appendFileSync(path, text, { mode: 0o600 });
  };
}

/** With five kept: path.5 goes, path.4 becomes path.5, …, path becomes path.1. */
function rotate(path: string, kept: number): void {
  rmSync(`${path}.${kept}`, { force: true });
  for (let n = kept - 1; n >= 0; n--) {
    const from = n === 0 ? path : `${path}.${n}`;
    if (existsSync(from)) renameSync(from, `${path}.${n + 1}`);
  }
}
