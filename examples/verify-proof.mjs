#!/usr/bin/env node
// Checks that a record is in the log whose checkpoint was signed, with Node alone: nothing of Portcullis is imported.
//
//   portcullis audit prove 41 > proof.json
//   node examples/verify-proof.mjs proof.json "example.com/gateway+1f3e…+AZ…"
//
// The second argument is the log's verifier key as you know it from elsewhere. Without it the key in the proof is
// used, which shows only that the proof agrees with itself. Exit code 0: every proof holds. 1: one does not.
// The formats: RFC 6962 (tree), c2sp.org/signed-note and c2sp.org/tlog-checkpoint, and docs/ledger.md.

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
const node = (left, right) => sha256(Buffer.from([1]), left, right);

function must(holds, complaint) {
  if (!holds) throw new Error(complaint);
}

/** name+id+base64(0x01 ‖ public key) */
function parseKey(vkey) {
  const [, name, id, encoded] = /^([^+\s]+)\+([0-9a-f]{8})\+(.+)$/.exec(vkey) ?? [];
  const bytes = Buffer.from(encoded ?? "", "base64");
  must(bytes.length === 33 && bytes[0] === 1, `"${vkey}" is not an Ed25519 verifier key`);
  must(sha256(`${name}\n`, bytes).toString("hex", 0, 4) === id, `the id of key "${vkey}" is not that of its bytes`);
  const jwk = { kty: "OKP", crv: "Ed25519", x: bytes.subarray(1).toString("base64url") };
  return { name, id, key: createPublicKey({ key: jwk, format: "jwk" }) };
}

/** The three lines of a checkpoint, once its signature by `key` has been checked. */
function openCheckpoint(note, { name, id, key }) {
  const end = note.lastIndexOf("\n\n") + 1;
  must(end > 0, "the checkpoint has no signature");
  const text = note.slice(0, end);
  const signatures = note
    .slice(end + 1)
    .split("\n")
    .filter((line) => line.startsWith(`\u2014 ${name} `))
    .map((line) => Buffer.from(line.slice(name.length + 3), "base64"))
    .filter((bytes) => bytes.toString("hex", 0, 4) === id);
  must(signatures.length > 0, `the checkpoint is not signed by ${name}+${id}`);
  must(
    signatures.every((bytes) => verify(null, Buffer.from(text), key, bytes.subarray(4))),
    "the signature of the checkpoint is false",
  );
  const [origin, size, root] = text.split("\n");
  return { origin, size: Number(size), root };
}

/** The root that follows from a leaf and its path (RFC 9162, 2.1.3.2). */
function rootOf(leaf, index, size, path) {
  must(Number.isSafeInteger(index) && index >= 0 && index < size, `record ${index} is not among the first ${size}`);
  let position = BigInt(index);
  let last = BigInt(size) - 1n;
  let hash = leaf;
  for (const sibling of path) {
    must(last > 0n && sibling.length === 32, "the path is too long, or not of hashes");
    if (position % 2n === 1n || position === last) {
      hash = node(sibling, hash);
      while (position % 2n === 0n && position > 0n) [position, last] = [position >> 1n, last >> 1n];
    } else {
      hash = node(hash, sibling);
    }
    [position, last] = [position >> 1n, last >> 1n];
  }
  must(last === 0n, "the path is too short");
  return hash.toString("base64");
}

function check(proof, knownKey) {
  must(proof?.type === "portcullis-inclusion-proof" && proof.v === 1, "this is not an inclusion proof of version 1");
  const checkpoint = openCheckpoint(proof.checkpoint, parseKey(knownKey ?? proof.public_key));
  must(
    checkpoint.origin === proof.origin,
    `the checkpoint is of "${checkpoint.origin}", the proof of "${proof.origin}"`,
  );
  must(
    checkpoint.size === proof.size,
    `the checkpoint covers ${checkpoint.size} records, the proof says ${proof.size}`,
  );
  const leaf = sha256(Buffer.from([0]), proof.line);
  const path = proof.path.map((hash) => Buffer.from(hash, "base64"));
  const root = rootOf(leaf, proof.index, proof.size, path);
  must(root === checkpoint.root, "the record does not lead to the signed root: the record or the path was changed");
  must(JSON.parse(proof.line).seq === proof.index, "the record names another position");
  return checkpoint;
}

const [file = "-", knownKey] = process.argv.slice(2);
try {
  const input = JSON.parse(readFileSync(file === "-" ? 0 : file, "utf8"));
  const proofs = Array.isArray(input) ? input : [input];
  must(proofs.length > 0, "there is no proof in the file");
  for (const proof of proofs) {
    const { origin, size } = check(proof, knownKey);
    const { kind, ts, actor = "", tool = "" } = JSON.parse(proof.line);
    console.log(`holds: record ${proof.index} of ${size} in ${origin}: ${kind} ${ts} ${actor} ${tool}`.trimEnd());
    if (knownKey === undefined)
      console.log(`  by the key in the proof; compare it with the one you know: ${proof.public_key}`);
  }
} catch (error) {
  console.error(`DOES NOT HOLD: ${error.message}`);
  process.exitCode = 1;
}
