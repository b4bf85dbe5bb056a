// Signatures in minisign's format (Ed25519), both kinds: over the file itself (`Ed`) and over its BLAKE2b-512 (`ED`).
// The trusted comment counts as read only when the second, global signature over it holds as well.

import { createHash, createPublicKey, type KeyObject, verify } from "node:crypto";

export class SignatureInvalid extends Error {
  readonly code = "SIGNATURE_INVALID";
  constructor(message: string) {
    super(message);
    this.name = "SignatureInvalid";
  }
}

export interface ReleaseKey {
  /** As minisign prints it: sixteen hexadecimal digits. */
  readonly id: string;
  readonly key: KeyObject;
}

const UNTRUSTED = "untrusted comment: ";
const TRUSTED = "trusted comment: ";
const ID_BYTES = 8;
const KEY_BYTES = 2 + ID_BYTES + 32;
const SIGNATURE_BYTES = 2 + ID_BYTES + 64;
/** A signature is four short lines; what is longer is none. */
export const MAX_SIGNATURE_BYTES = 8 * 1024;

/** Takes a `.pub` file, or only its second line. */
export function parsePublicKey(text: string): ReleaseKey {
  const lines = linesOf(text);
  const line = lines.length > 1 && lines[0]?.startsWith(UNTRUSTED) ? lines[1] : lines[0];
  const bytes = base64(line ?? "", KEY_BYTES);
  if (!bytes || bytes.toString("latin1", 0, 2) !== "Ed" || lines.length > 2) {
    throw new SignatureInvalid("this is no minisign public key: it is two lines, and the second starts with RW");
  }
  const x = bytes.subarray(2 + ID_BYTES).toString("base64url");
  return {
    id: idOf(bytes),
    key: createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" }),
  };
}

/** Answers the trusted comment; throws unless both signatures are by this key. */
export function verifySignature(message: Buffer, signature: Buffer, by: ReleaseKey): string {
  // latin1 keeps every byte of the comment, which is what was signed.
  const lines = linesOf(signature.toString("latin1"));
  if (signature.length > MAX_SIGNATURE_BYTES || lines.length !== 4) {
    throw new SignatureInvalid("this is no minisign signature: it has four lines");
  }
  const [first, second, third, fourth] = lines as [string, string, string, string];
  const bytes = base64(second, SIGNATURE_BYTES);
  const global = base64(fourth, 64);
  if (!first.startsWith(UNTRUSTED) || !third.startsWith(TRUSTED) || !bytes || !global) {
    throw new SignatureInvalid("this is no minisign signature: its lines are not in minisign's form");
  }
  const id = idOf(bytes);
  if (id !== by.id) throw new SignatureInvalid(`signed by key ${id}, but only ${by.id} is trusted`);
  const own = bytes.subarray(2 + ID_BYTES);
  if (!verify(null, signedBytes(bytes.toString("latin1", 0, 2), message), by.key, own)) {
    throw new SignatureInvalid(`the signature does not fit the file (key ${id})`);
  }
  const comment = Buffer.from(third.slice(TRUSTED.length), "latin1");
  if (!verify(null, Buffer.concat([own, comment]), by.key, global)) {
    throw new SignatureInvalid(`the trusted comment is not the one that was signed (key ${id})`);
  }
  return comment.toString("utf8");
}

function signedBytes(algorithm: string, message: Buffer): Buffer {
  switch (algorithm) {
    case "Ed":
      return message;
    case "ED":
      return createHash("blake2b512").update(message).digest();
    default:
      throw new SignatureInvalid("the signature names an algorithm that minisign does not have");
  }
}

/** The id is a little-endian number. */
function idOf(bytes: Buffer): string {
  return bytes.readBigUInt64LE(2).toString(16).toUpperCase().padStart(16, "0");
}

function linesOf(text: string): string[] {
  const lines = text.split("\n").map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Exactly this many bytes in the one spelling that base64 has for them. */
function base64(text: string, length: number): Buffer | undefined {
  const bytes = Buffer.from(text, "base64");
  return bytes.length === length && bytes.toString("base64") === text ? bytes : undefined;
}
