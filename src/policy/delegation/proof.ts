// How a delegation token proves that it is genuine. Inside one gateway (`pch1.block.block…~tag`) each tag is keyed with the
// one before it: the holder of a token can add a block without the gateway, and no holder can remove one. Across gateways
// (`pcs1.block.signature.block.signature…~private key of the next block`) each block names the public key that signs the
// next one; the first gateway's public key verifies all of it.

import { createHmac, generateKeyPairSync, type KeyObject, sign, timingSafeEqual, verify } from "node:crypto";
import { type Block, DelegationRefused, decodeBlock, encodeBlock, TOKEN_LIMITS } from "./block.js";
import { type DelegationKeys, privateKeyFrom, publicKeyFrom, rawPublic } from "./keys.js";

/** The parts between the prefix and the `~`, and what stands after it. */
export function partsOf(token: string, prefix: string): { body: string[]; end: string } {
  const at = token.lastIndexOf("~");
  if (token.length > TOKEN_LIMITS.maxTokenChars || !token.startsWith(prefix) || at === -1) throw malformedToken();
  const body = token.slice(prefix.length, at).split(".");
  if (body.length > 2 * TOKEN_LIMITS.maxBlocks) throw malformedToken();
  return { body, end: token.slice(at + 1) };
}

/** Base64url in the one form that there is for these bytes, so that a token has one text. */
export function bytesOf(part: string): Buffer {
  const bytes = Buffer.from(part, "base64url");
  if (bytes.toString("base64url") !== part) throw malformedToken();
  return bytes;
}

function malformedToken(): DelegationRefused {
  return new DelegationRefused("malformed", "the delegation token is malformedToken, or longer than is accepted");
}

export const HMAC_PREFIX = "pch1.";
const CONTEXT = "portcullis delegation, hmac chain, 1\n";

const link = (key: Uint8Array, block: string): Buffer => createHmac("sha256", key).update(block).digest();
const first = (keys: DelegationKeys, block: string): Buffer =>
  createHmac("sha256", keys.secret).update(CONTEXT).update(block).digest();

export function startHmac(keys: DelegationKeys, block: string): string {
  return `${HMAC_PREFIX}${encoded(block)}~${first(keys, block).toString("base64url")}`;
}

export function extendHmac(token: string, block: string): string {
  const { body, end } = partsOf(token, HMAC_PREFIX);
  return `${HMAC_PREFIX}${[...body, encoded(block)].join(".")}~${link(bytesOf(end), block).toString("base64url")}`;
}

/** The texts of the blocks, when every tag is right. */
export function openHmac(token: string, keys: DelegationKeys): string[] {
  const { body, end } = partsOf(token, HMAC_PREFIX);
  const blocks = body.map((part) => bytesOf(part).toString("utf8"));
  const [root, ...rest] = blocks;
  if (root === undefined)
    throw new DelegationRefused("malformed", "the delegation token is malformed: it has no blocks");
  let tag = first(keys, root);
  for (const block of rest) tag = link(tag, block);
  const given = bytesOf(end);
  if (given.length !== tag.length || !timingSafeEqual(given, tag)) {
    throw new DelegationRefused("forged", "the delegation token was not minted here, or was changed afterwards");
  }
  return blocks;
}

function encoded(block: string): string {
  return Buffer.from(block).toString("base64url");
}

export const SIGNED_PREFIX = "pcs1.";
const SIGNED_CONTEXT = Buffer.from("portcullis delegation, signed blocks, 1\n");
const NOTHING = Buffer.alloc(0);

/** A signature covers the one before it, so that a block cannot move to another chain. */
const message = (before: Uint8Array, block: string): Buffer =>
  Buffer.concat([SIGNED_CONTEXT, before, Buffer.from(block)]);

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
      throw forged(i === 0 ? "its gateway is not one that is trusted here" : "it has blocks after its end");
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
    // An invalid key verifies nothing.
    return false;
  }
}

function forged(why: string): DelegationRefused {
  return new DelegationRefused("forged", `the delegation token is not genuine: ${why}`);
}
