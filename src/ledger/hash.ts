import { hash } from "node:crypto";

export const HASH_BYTES = 32;

/** The `prev` of the very first record: 32 zero bytes. */
export const NO_PREV = Buffer.alloc(HASH_BYTES).toString("base64");

/** Root of a tree without leaves (RFC 6962, 2.1). */
export const EMPTY_ROOT = hash("sha256", "", "base64");

// One-shot hashing with a string result is about twice as fast as one with a Buffer result (measured on Node 20),
// so hashes travel as base64 text and are decoded only where bytes are needed.

/** RFC 6962 leaf hash of `bytes[start..end)`. The byte before `start` is borrowed for the 0x00 prefix and restored. */
export function leafHashInPlace(bytes: Buffer, start: number, end: number): string {
  const borrowed = bytes[start - 1] as number;
  bytes[start - 1] = 0;
  const digest = hash("sha256", bytes.subarray(start - 1, end), "base64");
  bytes[start - 1] = borrowed;
  return digest;
}

/** RFC 6962 leaf hash of one line, without its newline. */
export function leafHash(line: Uint8Array | string): string {
  const bytes = typeof line === "string" ? Buffer.from(line) : line;
  const prefixed = Buffer.allocUnsafe(bytes.length + 1);
  prefixed[0] = 0;
  prefixed.set(bytes, 1);
  return hash("sha256", prefixed, "base64");
}

const pair = Buffer.alloc(1 + 2 * HASH_BYTES);
pair[0] = 1;

/** RFC 6962 interior hash of two hashes, written to `out` at `at`; `out` may hold the inputs as well. */
export function nodeHashInto(
  left: Buffer,
  leftAt: number,
  right: Buffer,
  rightAt: number,
  out: Buffer,
  at: number,
): void {
  left.copy(pair, 1, leftAt, leftAt + HASH_BYTES);
  right.copy(pair, 1 + HASH_BYTES, rightAt, rightAt + HASH_BYTES);
  out.write(hash("sha256", pair, "binary"), at, HASH_BYTES, "latin1");
}

export function nodeHash(left: Buffer, right: Buffer): Buffer {
  const out = Buffer.allocUnsafe(HASH_BYTES);
  nodeHashInto(left, 0, right, 0, out, 0);
  return out;
}
