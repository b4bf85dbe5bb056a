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

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const CODES = Uint8Array.from(ALPHABET, (letter) => letter.charCodeAt(0));

/** 37 bytes are 296 bits, so 60 characters after the `b`; the last group is filled with zeros that are not written. */
const LENGTH = 1 + Math.ceil((BYTES * 8) / 5);

/** The prefix is five bytes, which is exactly eight characters: they stand in the buffer once and for all. */
const HEAD = 1 + (PREFIX.length * 8) / 5;
const scratch = Buffer.alloc(HEAD + 56);
scratch.write("b", 0, "latin1");
encode(PREFIX.toString("latin1"), 1);

/** Base32 of `bytes` (a multiple of five, one character a byte) into the buffer. */
function encode(bytes: string, start: number): void {
  let to = start;
  for (let i = 0; i < bytes.length; i += 5) {
    const a = bytes.charCodeAt(i);
    const b = bytes.charCodeAt(i + 1);
    const c = bytes.charCodeAt(i + 2);
    const d = bytes.charCodeAt(i + 3);
    const e = bytes.charCodeAt(i + 4);
    scratch[to++] = CODES[a >> 3] as number;
    scratch[to++] = CODES[((a & 7) << 2) | (b >> 6)] as number;
    scratch[to++] = CODES[(b >> 1) & 31] as number;
    scratch[to++] = CODES[((b & 1) << 4) | (c >> 4)] as number;
    scratch[to++] = CODES[((c & 15) << 1) | (d >> 7)] as number;
    scratch[to++] = CODES[(d >> 2) & 31] as number;
    scratch[to++] = CODES[((d & 3) << 3) | (e >> 5)] as number;
    scratch[to++] = CODES[e & 31] as number;
  }
}

export function contentId(canonicalText: string): string {
  encode(`${sha256(canonicalText)}\0\0\0`, HEAD);
  return scratch.toString("latin1", 0, LENGTH);
}
