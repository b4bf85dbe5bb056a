// Proofs of possession (RFC 9449): a token bound to a key is useless without that key.

import { createHash, randomUUID } from "node:crypto";
import type { CryptoKey } from "jose";
import type { JsonObject } from "../../mcp/index.js";

export const DPOP_ALGORITHM = "ES256";
const NONCE = /^[\x21\x23-\x5b\x5d-\x7e]{1,1024}$/;

export interface Proof {
  readonly method: string;
  readonly url: URL;
  /** The token it goes with; none at the token endpoint. */
  readonly token?: string;
  readonly nonce?: string | undefined;
}

export async function newProofKey(): Promise<JsonObject> {
  const { exportJWK, generateKeyPair } = await import("jose");
  const { privateKey } = await generateKeyPair(DPOP_ALGORITHM, { extractable: true });
  return (await exportJWK(privateKey)) as JsonObject;
}

/** Imported once: a proof is made for every request. */
const imported = new WeakMap<JsonObject, CryptoKey | Uint8Array>();

export async function proveDpop(key: JsonObject, { method, url, token, nonce }: Proof): Promise<string> {
  const { importJWK, SignJWT } = await import("jose");
  const signWith = imported.get(key) ?? (await importJWK(key, DPOP_ALGORITHM));
  imported.set(key, signWith);
  const { kty, crv, x, y } = key as Record<"kty" | "crv" | "x" | "y", string>;
  const claims = {
    jti: randomUUID(),
    htm: method,
    htu: `${url.origin}${url.pathname}`,
    ...(nonce === undefined ? {} : { nonce }),
    ...(token === undefined ? {} : { ath: createHash("sha256").update(token, "ascii").digest("base64url") }),
  };
  return new SignJWT(claims)
    .setProtectedHeader({ alg: DPOP_ALGORITHM, typ: "dpop+jwt", jwk: { kty, crv, x, y } })
    .setIssuedAt()
    .sign(signWith);
}

export function nonceFrom(value: unknown): string | undefined {
  return typeof value === "string" && NONCE.test(value) ? value : undefined;
}
