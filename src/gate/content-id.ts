// CIDv1 of canonical JSON: codec json (0x0200), multihash sha2-256, base32 lower case.

import { createHash, hash } from "node:crypto";

/** version 1, codec 0x0200 as a varint, sha2-256, 32 bytes. */
const PREFIX = Buffer.from([0x01, 0x80, 0x04, 0x12, 0x20]);
const BYTES = PREFIX.length + 32;

// The one-shot hash saves an object a call; it came with Node 20.12. Latin-1 carries the bytes without a Buffer.
const sha256: (text: string) => string =
  typeof hash === "function"
    ? (text) => hash("sha256", text, "binary")
    : (text) => createHash("sha256").update(text).digest("binary");

/** Two characters for every ten bits: half the steps of one character for five. */
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const PAIRS: readonly string[] = Array.from({ length: 1024 }, (_, i) => `${ALPHABET[i >> 5]}${ALPHABET[i & 31]}`);

/** The prefix is five bytes, which is exactly four pairs: it is the same in every id. */
const HEAD = `b${pairsOf(PREFIX.toString("latin1"))}`;

function pairsOf(bytes: string): string {
  let out = "";
  // Five bytes are forty bits are four pairs.
  for (let i = 0; i < bytes.length; i += 5) {
    const a = bytes.charCodeAt(i);
    const b = bytes.charCodeAt(i + 1);
    const c = bytes.charCodeAt(i + 2);
    const d = bytes.charCodeAt(i + 3);
    const e = bytes.charCodeAt(i + 4);
    out +=
      (PAIRS[(a << 2) | (b >> 6)] as string) +
      PAIRS[((b & 63) << 4) | (c >> 4)] +
      PAIRS[((c & 15) << 6) | (d >> 2)] +
      PAIRS[((d & 3) << 8) | e];
  }
  return out;
}

/** 37 bytes are 296 bits, so 60 characters; the last group is filled with zeros that are not written. */
const LENGTH = 1 + Math.ceil((BYTES * 8) / 5);

export function contentId(canonicalText: string): string {
  return (HEAD + pairsOf(`${sha256(canonicalText)}\0\0\0`)).slice(0, LENGTH);
}
