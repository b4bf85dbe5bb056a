// The policy's fingerprint: SHA-256 over its canonical JSON. Comments, order of keys and spelled-out defaults do not
// change it; anything that can change a decision does.

import { createHash } from "node:crypto";

/** RFC 8785 for the data a policy holds: strings, whole numbers, booleans, lists, maps. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, v]) => v !== undefined);
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([k, v]) => `${JSON.stringify(k)}:${canonicalJson(v)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

export function policyHash(document: unknown): string {
  return createHash("sha256").update(canonicalJson(document)).digest("hex");
}
