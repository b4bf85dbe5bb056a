// What a gateway signs delegations with: a secret for chains that stay inside it, a key pair for those that leave.

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from "node:crypto";

const SECRET_BYTES = 32;

export interface DelegationKeys {
  /** Name of the gateway: a fingerprint of its public key, so that no other gateway can claim it. */
  readonly gateway: string;
  readonly secret: Buffer;
  readonly privateKey: KeyObject;
  /** 32 bytes in base64url: what another gateway has to know to accept delegations from here. */
  readonly publicKey: string;
  /** Keys that were replaced and whose tokens are still accepted, the newest first. */
  readonly older?: readonly OlderDelegationKeys[];
}

interface OlderDelegationKeys extends DelegationKeys {
  /** When their tokens are refused, in milliseconds since 1970. */
  readonly until: number;
}

export function generateDelegationKeys(): DelegationKeys {
  return keysFrom(randomBytes(SECRET_BYTES), generateKeyPairSync("ed25519").privateKey);
}

/** As text for a file that only its owner may read. */
export function exportDelegationKeys(keys: DelegationKeys): string {
  const older = (keys.older ?? []).map((each) => ({ ...textOf(each), until: each.until }));
  return `${JSON.stringify({ v: 1, ...textOf(keys), ...(older.length > 0 ? { older } : {}) })}\n`;
}

function textOf({ secret, privateKey, publicKey }: DelegationKeys): Record<string, unknown> {
  return { secret: secret.toString("base64url"), private: privateKey.export({ format: "jwk" }).d, public: publicKey };
}

export function importDelegationKeys(text: string): DelegationKeys {
  try {
    const { v, older = [], ...current } = JSON.parse(text) as Record<string, unknown>;
    if (v !== 1 || !Array.isArray(older)) throw new Error("unknown form");
    const accepted = (older as Record<string, unknown>[]).map((each) => ({
      ...keysIn(each),
      until: Number(each.until),
    }));
    return { ...keysIn(current), ...(accepted.length > 0 ? { older: accepted } : {}) };
  } catch {
    throw new Error("the delegation keys cannot be read; delete the file and new ones are made, old tokens then fail");
  }
}

function keysIn({ secret, private: d, public: x }: Record<string, unknown>): DelegationKeys {
  const bytes = Buffer.from(String(secret), "base64url");
  if (bytes.length !== SECRET_BYTES) throw new Error("unknown form");
  return keysFrom(bytes, privateKeyFrom(String(d), String(x)));
}

function keysFrom(secret: Buffer, privateKey: KeyObject): DelegationKeys {
  const publicKey = rawPublic(privateKey);
  return { gateway: gatewayName(publicKey), secret, privateKey, publicKey };
}

/** The name that goes with a public key. */
export function gatewayName(publicKey: string): string {
  return `gw-${createHash("sha256").update(publicKey).digest("hex").slice(0, 32)}`;
}

/** The public half of a private key, 32 bytes in base64url. */
export function rawPublic(privateKey: KeyObject): string {
  return createPublicKey(privateKey).export({ format: "jwk" }).x as string;
}

export function publicKeyFrom(x: string): KeyObject {
  return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
}

export function privateKeyFrom(d: string, x: string): KeyObject {
  const key = createPrivateKey({ key: { kty: "OKP", crv: "Ed25519", d, x }, format: "jwk" });
  // A private key that does not belong to the public one signs nothing that is accepted; better said here.
  if (rawPublic(key) !== x) throw new Error("the private key does not belong to the public key");
  return key;
}
