// The holder of a key that tokens are bound to, whose proofs can be made wrong in every way.

import { createHash, randomUUID } from "node:crypto";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, type JWK, SignJWT } from "jose";

export interface Proved {
  readonly method: string;
  readonly url: string;
  readonly token?: string;
}

export interface Prover {
  readonly thumbprint: string;
  readonly jwk: JWK;
  readonly privateJwk: JWK;
  /** Right unless something is put in its place; `undefined` takes it away. */
  prove(of: Proved, claims?: Record<string, unknown>, header?: Record<string, unknown>): Promise<string>;
}

export async function prover(alg = "ES256", options: { readonly modulusLength?: number } = {}): Promise<Prover> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true, ...options });
  return proverOf(await exportJWK(privateKey), alg);
}

/** Whoever holds this private key. */
async function proverOf(privateJwk: JWK, alg = "ES256"): Promise<Prover> {
  const { d: _d, p: _p, q: _q, dp: _dp, dq: _dq, qi: _qi, ...jwk } = privateJwk;
  const key = await importJWK(privateJwk, alg);
  return {
    jwk,
    privateJwk,
    thumbprint: await calculateJwkThumbprint(jwk),
    prove: ({ method, url, token }, claims = {}, header = {}) =>
      new SignJWT({
        jti: randomUUID(),
        htm: method,
        htu: url,
        iat: Math.floor(Date.now() / 1_000),
        ...(token === undefined ? {} : { ath: hashOf(token) }),
        ...claims,
      })
        .setProtectedHeader({ typ: "dpop+jwt", alg, jwk, ...header })
        .sign(key),
  };
}

export function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("base64url");
}
