// Across gateways: each block names the public key that signs the next one, and the token carries the private half of
// the last key. Whoever knows the first gateway's public key can check all of it; whoever holds the token can add to it.
//   pcs1.block.signature.block.signature…~private key of the next block, nothing once it is spent

import { generateKeyPairSync, type KeyObject, sign, verify } from "node:crypto";
import { type Block, decodeBlock, encodeBlock } from "./block.js";
import { type DelegationKeys, privateKeyFrom, publicKeyFrom, rawPublic } from "./keys.js";
import { DelegationRefused } from "./refused.js";
import { bytesOf, partsOf } from "./text.js";

export const SIGNED_PREFIX = "pcs1.";
const CONTEXT = Buffer.from("portcullis delegation, signed blocks, 1\n");
const NOTHING = Buffer.alloc(0);

/** A signature covers the one before it, so that a block cannot move to another chain. */
const message = (before: Uint8Array, block: string): Buffer => Buffer.concat([CONTEXT, before, Buffer.from(block)]);

export function startSigned(keys: DelegationKeys, block: Block): string {
  return SIGNED_PREFIX + appended([], NOTHING, keys.privateKey, block);
}

export function extendSigned(token: string, block: Block): string {
  const { body, end } = partsOf(token, SIGNED_PREFIX);
  const [last, signature] = body.slice(-2);
  const { next } = decodeBlock(bytesOf(last ?? "").toString("utf8"));
  if (next === undefined || end === "") {
    throw new DelegationRefused("malformed", "this delegation token is spent: nothing can be added to it");
  }
  return SIGNED_PREFIX + appended(body, bytesOf(signature ?? ""), privateKeyFrom(end, next), block);
}

function appended(body: readonly string[], before: Uint8Array, key: KeyObject, block: Block): string {
  const follows = block.kind === "use" ? undefined : generateKeyPairSync("ed25519").privateKey;
  const text = encodeBlock(block, follows && rawPublic(follows));
  const signature = sign(null, message(before, text), key).toString("base64url");
  const proof = follows === undefined ? "" : (follows.export({ format: "jwk" }).d as string);
  return `${[...body, Buffer.from(text).toString("base64url"), signature].join(".")}~${proof}`;
}

/** The texts of the blocks, when every signature is right. `keyOf` knows the public keys of the gateways trusted here. */
export function openSigned(token: string, keyOf: (gateway: string) => string | undefined): string[] {
  const { body } = partsOf(token, SIGNED_PREFIX);
  const texts: string[] = [];
  let [before, key]: [Buffer, string | undefined] = [NOTHING, undefined];
  for (let i = 0; i < body.length; i += 2) {
    const text = bytesOf(body[i] ?? "").toString("utf8");
    const signature = bytesOf(body[i + 1] ?? "");
    const { block, next } = decodeBlock(text);
    if (i === 0 && block.kind === "root") key = keyOf(block.issuer);
    if (key === undefined)
      throw forged(i === 0 ? "its gateway is not one that is trusted here" : "it goes on after its end");
    if (!isSigned(key, message(before, text), signature)) throw forged("a signature is wrong");
    texts.push(text);
    [before, key] = [signature, next];
  }
  return texts;
}

function isSigned(key: string, text: Buffer, signature: Buffer): boolean {
  try {
    return verify(null, text, publicKeyFrom(key), signature);
  } catch {
    // A key that is no key signs nothing.
    return false;
  }
}

function forged(why: string): DelegationRefused {
  return new DelegationRefused("forged", `the delegation token is not genuine: ${why}`);
}
