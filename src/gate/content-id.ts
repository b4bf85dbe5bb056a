// CIDv1 of canonical JSON: codec json (0x0200), multihash sha2-256, base32 lower case.

import { createHash, hash } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
/** version 1, codec 0x0200 as a varint, sha2-256, 32 bytes. */
const PREFIX = Buffer.from([0x01, 0x80, 0x04, 0x12, 0x20]);
const BYTES = PREFIX.length + 32;

const scratch = Buffer.alloc(BYTES);
PREFIX.copy(scratch);

// The one-shot hash saves an object a call; it came with Node 20.12.
const sha256: (text: string) => Buffer =
  typeof hash === "function"
    ? (text) => hash("sha256", text, "buffer")
    : (text) => createHash("sha256").update(text).digest();

export function contentId(canonicalText: string): string {
  sha256(canonicalText).copy(scratch, PREFIX.length);
  let out = "b";
  let bits = 0;
  let value = 0;
  for (let i = 0; i < BYTES; i++) {
    value = ((value << 8) | (scratch[i] as number)) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += ALPHABET[(value >>> bits) & 31];
    }
  }
  return bits > 0 ? out + ALPHABET[(value << (5 - bits)) & 31] : out;
}
