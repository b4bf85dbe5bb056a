// Inside one gateway: each tag is keyed with the one before it. Whoever holds a token can add a block without asking
// anybody; nobody can take one away, because the earlier tag cannot be had from the later one.
//   pch1.block.block…~tag

import { createHmac, timingSafeEqual } from "node:crypto";
import type { DelegationKeys } from "./keys.js";
import { DelegationRefused } from "./refused.js";
import { bytesOf, partsOf } from "./text.js";

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
