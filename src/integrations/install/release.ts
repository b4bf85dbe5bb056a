// Signatures in minisign's format (Ed25519), both kinds: over the file itself (`Ed`) and over its BLAKE2b-512 (`ED`).
// The trusted comment counts as read only when the second, global signature over it holds as well.

import { createHash, createPublicKey, type KeyObject, verify } from "node:crypto";
import { CHANNELS, isVersion, type ReleaseChannel } from "./home.js";

class SignatureInvalid extends Error {
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
    throw new SignatureInvalid("not a minisign public key: expected two lines, the second beginning with RW");
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
    throw new SignatureInvalid("not a minisign signature: expected four lines");
  }
  const [first, second, third, fourth] = lines as [string, string, string, string];
  const bytes = base64(second, SIGNATURE_BYTES);
  const global = base64(fourth, 64);
  if (!first.startsWith(UNTRUSTED) || !third.startsWith(TRUSTED) || !bytes || !global) {
    throw new SignatureInvalid("not a minisign signature: its lines do not have minisign's form");
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

export interface Release {
  readonly version: string;
  readonly channel: ReleaseChannel;
  /** Unix seconds; says how old an offer is. */
  readonly published: number | undefined;
  /** Archive name → SHA-256 in hexadecimal. */
  readonly sums: ReadonlyMap<string, string>;
}

export const SUMS = "SHA256SUMS";
export const SIGNATURE = "SHA256SUMS.minisig";
export const MAX_SUMS_BYTES = 64 * 1024;
const SUM_LINE = /^([0-9a-f]{64}) [ *]([0-9A-Za-z][0-9A-Za-z._+-]{0,127})$/;

export function readRelease(sums: Buffer, signature: Buffer, key: ReleaseKey): Release {
  const facts = commentFacts(verifySignature(sums, signature, key));
  const version = facts.get("version");
  const channel = facts.get("channel") as ReleaseChannel | undefined;
  if (facts.get("name") !== "portcullis" || !isVersion(version) || !channel || !CHANNELS.includes(channel)) {
    throw new SignatureInvalid(
      `the signature is not of a Portcullis release: its comment names no version and channel`,
    );
  }
  const published = Number(facts.get("timestamp"));
  return { version, channel, published: Number.isSafeInteger(published) ? published : undefined, sums: sumsOf(sums) };
}

/** The comment is `key:value` pairs between tabs, as minisign writes its own. */
function commentFacts(comment: string): Map<string, string> {
  const facts = new Map<string, string>();
  for (const part of comment.split("\t")) {
    const colon = part.indexOf(":");
    const name = part.slice(0, colon);
    if (colon <= 0) continue;
    if (facts.has(name)) throw new SignatureInvalid(`the signed comment says \`${name}\` twice`);
    facts.set(name, part.slice(colon + 1));
  }
  return facts;
}

function sumsOf(text: Buffer): Map<string, string> {
  const sums = new Map<string, string>();
  for (const line of text.toString("latin1").split("\n")) {
    if (line === "") continue;
    const [, sum, name] = SUM_LINE.exec(line) ?? [];
    if (sum === undefined || name === undefined || sums.has(name)) {
      throw new SignatureInvalid(`${SUMS} has a line that is not \`<sha256>  <name>\`, or a name twice`);
    }
    sums.set(name, sum);
  }
  return sums;
}

/** One archive for each kind of machine, because one dependency is compiled. */
export function archiveName(version: string): string {
  return `portcullis-${version}-${machine()}.tar.gz`;
}

function machine(): string {
  // The report would otherwise look up the names of whatever is connected, which can take long.
  Object.assign(process.report, { excludeNetwork: true });
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const musl = process.platform === "linux" && header?.glibcVersionRuntime === undefined;
  return `${process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}
