// The host's plain audit log: one JSON line a request, rotated by size. The ledger is what can be proved; this is what
// people grep.

import { appendFileSync, existsSync, mkdirSync, renameSync, statSync } from "node:fs";
import { dirname } from "node:path";

const MAX_BYTES = 10 * 1024 * 1024;
const KEPT = 5;

export function auditFile(path: string, maxBytes: number = MAX_BYTES): (line: object) => void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  let bytes = existsSync(path) ? statSync(path).size : 0;
  return (line) => {
    const text = `${JSON.stringify(line)}\n`;
    if (bytes > 0 && bytes + text.length > maxBytes) {
      rotate(path);
      bytes = 0;
    }
    appendFileSync(path, text, { mode: 0o600 });
    bytes += Buffer.byteLength(text);
  };
}

/** path.4 makes room, path.3 becomes path.4, …, path becomes path.1. */
function rotate(path: string): void {
  for (let n = KEPT - 1; n >= 0; n--) {
    const from = n === 0 ? path : `${path}.${n}`;
    if (existsSync(from)) renameSync(from, `${path}.${n + 1}`);
  }
}
