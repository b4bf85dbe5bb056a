// The signing half of minisign: `minisign -V` takes what this makes, and src/integrations/install/release.ts takes both.
import { createHash, createPrivateKey, createPublicKey, sign as ed25519, generateKeyPairSync } from "node:crypto";

const SECRET_BYTES = 2 + 2 + 2 + 32 + 8 + 8 + 8 + 64 + 32;

function rawPublic(key) {
  return Buffer.from(createPublicKey(key).export({ format: "jwk" }).x, "base64url");
}

function privateFromSeed(seed, publicBytes) {
  const [d, x] = [seed, publicBytes].map((bytes) => bytes.toString("base64url"));
  return createPrivateKey({ key: { kty: "OKP", crv: "Ed25519", d, x }, format: "jwk" });
}

/** A key of our own has the start of its public half's hash as its id. */
function withId(key) {
  return { key, id: createHash("sha256").update(rawPublic(key)).digest().subarray(0, 8) };
}

export function makeKey() {
  return withId(generateKeyPairSync("ed25519").privateKey);
}

export function secretPem({ key }, passphrase) {
  const locked = passphrase ? { cipher: "aes-256-cbc", passphrase } : {};
  return key.export({ type: "pkcs8", format: "pem", ...locked });
}

/** A PEM file, or a minisign secret key without a password (`minisign -G -W`). */
export function parseSecret(text, passphrase) {
  if (text.includes("-----BEGIN")) return withId(createPrivateKey({ key: text, passphrase }));
  const bytes = Buffer.from(text.trim().split("\n").at(-1), "base64");
  if (bytes.length !== SECRET_BYTES || bytes.toString("latin1", 0, 2) !== "Ed") {
    throw new Error("this is neither a PEM nor a minisign secret key");
  }
  if (bytes.readUInt16LE(2) !== 0) {
    throw new Error("this minisign key has a password: sign SHA256SUMS with minisign itself, or give an open key");
  }
  const secret = bytes.subarray(62, 126);
  const key = privateFromSeed(secret.subarray(0, 32), secret.subarray(32));
  if (!rawPublic(key).equals(secret.subarray(32))) throw new Error("the two halves of this key do not belong together");
  return { key, id: bytes.subarray(54, 62) };
}

export function publicKeyText({ key, id }) {
  const number = id.readBigUInt64LE().toString(16).toUpperCase().padStart(16, "0");
  const line = Buffer.concat([Buffer.from("Ed"), id, rawPublic(key)]).toString("base64");
  return `untrusted comment: minisign public key ${number}\n${line}\n`;
}

/** `legacy` signs the bytes themselves instead of their hash. */
export function signFile(bytes, { key, id }, trustedComment, { legacy = false } = {}) {
  const message = legacy ? bytes : createHash("blake2b512").update(bytes).digest();
  const signature = ed25519(null, message, key);
  const global = ed25519(null, Buffer.concat([signature, Buffer.from(trustedComment)]), key);
  return [
    "untrusted comment: signature of a Portcullis release",
    Buffer.concat([Buffer.from(legacy ? "Ed" : "ED"), id, signature]).toString("base64"),
    `trusted comment: ${trustedComment}`,
    global.toString("base64"),
    "",
  ].join("\n");
}

export function releaseComment(version, channel, timestamp) {
  return `timestamp:${timestamp}\tfile:SHA256SUMS\tname:portcullis\tversion:${version}\tchannel:${channel}`;
}
