// Minting, handing on and spending delegations. Only minting needs the gateway's keys.

import { randomBytes } from "node:crypto";
import {
  type Block,
  checkBlock,
  DelegationRefused,
  decodeBlock,
  encodeBlock,
  type HopBlock,
  TOKEN_LIMITS,
  type UseBlock,
} from "./block.js";
import type { DelegationKeys } from "./keys.js";
import { checkNarrowed } from "./narrowing.js";
import {
  bytesOf,
  extendHmac,
  extendSigned,
  HMAC_PREFIX,
  openHmac,
  partsOf,
  SIGNED_PREFIX,
  startHmac,
  startSigned,
} from "./proof.js";

const HOUR_MS = 3_600_000;
const USE_MS = 60_000;
const NONCE_BYTES = 16;

export interface MintOptions {
  readonly agent: string;
  readonly app?: string;
  readonly tools?: readonly string[];
  /** How long it and everything made from it holds. Default: one hour. */
  readonly ttlMs?: number;
  /** For other gateways too. Default: only for the gateway that mints it. */
  readonly across?: boolean;
}

/** The token of an agent that has authority of its own. */
export function mintDelegation(keys: DelegationKeys, options: MintOptions): string {
  const block: Block = {
    kind: "root",
    agent: options.agent,
    app: options.app ?? "local",
    issuer: keys.gateway,
    id: randomBytes(NONCE_BYTES).toString("base64url"),
    expires: Date.now() + (options.ttlMs ?? HOUR_MS),
    ...(options.tools === undefined ? {} : { tools: options.tools }),
  };
  checkBlock(block);
  return options.across === true ? startSigned(keys, block) : startHmac(keys, encodeBlock(block));
}

export type HandOn = Omit<HopBlock, "kind" | "expires"> & { readonly ttlMs?: number };

/** Hands a delegation on to another agent, narrowed if wanted. The holder of a token can do this without any key. */
export function handOnDelegation(token: string, { ttlMs, ...hop }: HandOn): string {
  const expires = ttlMs === undefined ? {} : { expires: Date.now() + ttlMs };
  const block: HopBlock = { kind: "hop", ...hop, ...expires };
  checkBlock(block);
  const given = hop.tools ?? toolsIn(token);
  if (given !== undefined) checkNarrowed(new Set(given), block);
  return extend(token, block);
}

/** What a token says that it is for; undefined where that is all its root is offered, which only a gateway knows. */
function toolsIn(token: string): readonly string[] | undefined {
  const isSigned = token.startsWith(SIGNED_PREFIX);
  const { body } = partsOf(token, isSigned ? SIGNED_PREFIX : HMAC_PREFIX);
  const texts = isSigned ? body.filter((_, i) => i % 2 === 0) : body;
  return texts.slice(0, TOKEN_LIMITS.maxBlocks).reduce<readonly string[] | undefined>((tools, text) => {
    const { block } = decodeBlock(bytesOf(text).toString("utf8"));
    return block.kind === "use" ? tools : (block.tools ?? tools);
  }, undefined);
}

export interface Spending {
  /** Id of the gateway that will be asked. Default: the one that minted the delegation. */
  readonly audience?: string;
  readonly ttlMs?: number;
  /** Ties it to one call: a capability and the content id of its arguments. */
  readonly tool?: string;
  readonly args?: string;
}

/** What travels with one request. It holds for one call; the token it is made from stays with its holder. */
export function spendDelegation(
  token: string,
  { ttlMs = USE_MS, audience = issuerOf(token), ...use }: Spending = {},
): string {
  const now = Date.now();
  const nonce = randomBytes(NONCE_BYTES).toString("base64url");
  const block: UseBlock = { kind: "use", nonce, audience, issued: now, expires: now + ttlMs, ...use };
  return extend(token, block);
}

function issuerOf(token: string): string {
  const prefix = token.startsWith(SIGNED_PREFIX) ? SIGNED_PREFIX : HMAC_PREFIX;
  const { block } = decodeBlock(bytesOf(partsOf(token, prefix).body[0] ?? "").toString("utf8"));
  if (block.kind === "root") return block.issuer;
  throw new DelegationRefused("malformed", "the delegation token does not begin with its root");
}

function extend(token: string, block: Block): string {
  const longer = token.startsWith(SIGNED_PREFIX) ? extendSigned(token, block) : extendHmac(token, encodeBlock(block));
  if (longer.length > TOKEN_LIMITS.maxTokenChars) {
    throw new DelegationRefused(
      "malformed",
      `the token would be longer than ${TOKEN_LIMITS.maxTokenChars} characters; name fewer tools or arguments`,
    );
  }
  return longer;
}

/** The same delegation for use at other gateways: only the gateway that minted it can say so. */
export function takeDelegationAcross(keys: DelegationKeys, token: string): string {
  if (!token.startsWith(HMAC_PREFIX)) return token;
  const [root, ...rest] = openHmac(token, keys).map((text) => decodeBlock(text).block);
  if (root?.kind !== "root" || rest.some((block) => block.kind !== "hop")) {
    throw new DelegationRefused("malformed", "only a delegation that is not spent can be taken to another gateway");
  }
  return rest.reduce((signed, block) => extendSigned(signed, block), startSigned(keys, root));
}
