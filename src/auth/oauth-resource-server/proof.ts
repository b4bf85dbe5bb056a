// Proof of possession (RFC 9449): whoever sends a token that is bound to a key shows, for each request anew, that the key
// is theirs. A copy of the token, or of a whole request, is worth nothing.

import { createHash } from "node:crypto";
import {
  type CryptoKey,
  calculateJwkThumbprint,
  decodeProtectedHeader,
  errors,
  importJWK,
  type JWK,
  type JWTPayload,
  jwtVerify,
} from "jose";
import { Fault, isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { Peer } from "../../mcp/transports/index.js";
import { isTarget } from "./proof-target.js";
import { type NonceStore, onceHere } from "./replays.js";
import { ALGORITHMS } from "./settings.js";

const MAX_PROOF_CHARS = 4_096;
const MAX_JWK_CHARS = 2_048;
const MAX_JTI_CHARS = 256;
const MAX_KEYS = 1_000;
const JWT = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;
/** The members that make a public key, by its type. Everything else in a `jwk` is left unread, or a secret. */
const PUBLIC: Readonly<Record<string, readonly string[]>> = {
  EC: ["crv", "x", "y"],
  OKP: ["crv", "x"],
  RSA: ["n", "e"],
};
const SECRET = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/** Why a proof does not count, in words that may be told, and OAuth's name for it. */
export class ProofRefused extends Error {
  readonly code = "PROOF_REFUSED";
  readonly error: "invalid_dpop_proof" | "invalid_token";
  constructor(message: string, error: ProofRefused["error"] = "invalid_dpop_proof") {
    super(message);
    this.error = error;
  }
}

export interface ProofOptions {
  /** Where this gateway's paths begin, as callers write it. */
  readonly roots: readonly string[];
  readonly maxAgeMs: number;
  readonly maxAheadMs: number;
  readonly now: () => number;
  /** Asked besides this process's own memory: what all replicas remember. */
  readonly once?: NonceStore | undefined;
  /** Proofs being checked at once; more are told to come back. */
  readonly maxChecking?: number;
}

interface Shown {
  readonly token: string;
  readonly accepted: Promise<void>;
}

const DEFAULTS = { maxChecking: 2_048 };

export class Proofs {
  readonly #options: ProofOptions & typeof DEFAULTS;
  readonly #onceHere: NonceStore;
  /** A request has one proof, however many messages are in it; so has a connection that stays. */
  readonly #shown = new WeakMap<Peer, Shown>();
  readonly #keys = new Map<string, CryptoKey | Uint8Array>();
  #checking = 0;

  constructor(options: ProofOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#onceHere = onceHere({ now: options.now });
  }

  /** Rejects unless this peer's request proves the key of that thumbprint, for this token (by its SHA-256), once. */
  accept(peer: Peer, token: string, thumbprint: string): Promise<void> {
    const shown = this.#shown.get(peer);
    if (shown?.token === token) return shown.accepted;
    const accepted = this.#check(peer, token, thumbprint);
    this.#shown.set(peer, { token, accepted });
    // A connection that stays is not lost for ever because a store was.
    accepted.catch((error: unknown) => {
      if (!(error instanceof ProofRefused)) this.#shown.delete(peer);
    });
    return accepted;
  }

  async #check(peer: Peer, token: string, thumbprint: string): Promise<void> {
    const { once, maxAgeMs, maxAheadMs, maxChecking } = this.#options;
    if (this.#checking >= maxChecking) throw new Fault("Unavailable", "too many proofs are being checked; try again");
    this.#checking++;
    try {
      const jti = await this.#verified(peer, token, thumbprint);
      const id = `${thumbprint}:${createHash("sha256").update(jti).digest("base64url")}`;
      // Replicas' clocks may differ by as much as a caller's may.
      const ttlMs = maxAgeMs + 2 * maxAheadMs;
      // Here first: one key cannot fill what all replicas share either.
      if (!(await this.#onceHere(id, ttlMs)) || !((await once?.(id, ttlMs)) ?? true)) {
        throw new ProofRefused("the proof was used before; each request needs one of its own");
      }
    } catch (error) {
      if (error instanceof ProofRefused || error instanceof Fault) throw error;
      // Ours to mend, not the caller's.
      throw new Fault("Unavailable", "proofs cannot be checked at the moment; try again", { cause: error });
    } finally {
      this.#checking--;
    }
  }

  /** The proof's own id. */
  async #verified({ headers, method, path }: Peer, token: string, thumbprint: string): Promise<string> {
    const proof = headers?.dpop;
    if (proof === undefined) throw new ProofRefused("the header `DPoP` with a proof is missing");
    // Two headers arrive as one text with a comma in it, which is no JWT.
    if (typeof proof !== "string" || proof.length > MAX_PROOF_CHARS || !JWT.test(proof)) {
      throw new ProofRefused("the header `DPoP` must be there once and hold a signed JWT");
    }
    const { alg, jwk } = headerOf(proof);
    // Before the signature: a stranger's key is not worth the work.
    if ((await calculateJwkThumbprint(jwk)) !== thumbprint) {
      throw new ProofRefused("the proof is made with another key than the token is bound to", "invalid_token");
    }
    const { jti, htm, htu, ath, iat } = await this.#claimsOf(proof, alg, jwk, thumbprint);
    const { now, maxAgeMs, maxAheadMs, roots } = this.#options;
    if (typeof jti !== "string" || jti === "" || jti.length > MAX_JTI_CHARS) {
      throw new ProofRefused(`the proof's \`jti\` must be a text of 1 to ${MAX_JTI_CHARS} characters`);
    }
    if (htm !== method) throw new ProofRefused("the proof's `htm` names another method");
    if (typeof htu !== "string" || path === undefined || !isTarget(htu, path, roots)) {
      throw new ProofRefused("the proof's `htu` names another address");
    }
    if (ath !== token) throw new ProofRefused("the proof's `ath` is not the hash of this token");
    if (typeof iat !== "number") throw new ProofRefused("the proof's `iat` is missing");
    const ageMs = now() - iat * 1_000;
    if (!(ageMs <= maxAgeMs)) throw new ProofRefused(`the proof is older than ${maxAgeMs / 1_000} s; check the clock`);
    if (!(ageMs >= -maxAheadMs)) throw new ProofRefused("the proof's `iat` is in the future; check the clock");
    return jti;
  }

  async #claimsOf(proof: string, alg: string, jwk: JWK, thumbprint: string): Promise<JWTPayload> {
    try {
      const key = await this.#keyOf(alg, jwk, thumbprint);
      const { payload } = await jwtVerify(proof, key, {
        algorithms: [alg],
        currentDate: new Date(this.#options.now()),
        clockTolerance: this.#options.maxAheadMs / 1_000,
      });
      return payload;
    } catch (error) {
      if (error instanceof errors.JWTClaimValidationFailed) {
        throw new ProofRefused(`the proof's \`${error.claim}\` is not accepted`);
      }
      if (error instanceof errors.JWTExpired) throw new ProofRefused("the proof has expired");
      // Whatever else it is, it is about what the sender wrote.
      throw new ProofRefused("the proof's signature is not that of its `jwk`");
    }
  }

  /** To import one takes about as long as to check a signature with it, and callers come again. */
  async #keyOf(alg: string, jwk: JWK, thumbprint: string): Promise<CryptoKey | Uint8Array> {
    const id = `${alg} ${thumbprint}`;
    const known = this.#keys.get(id);
    if (known) return known;
    const key = await importJWK(jwk, alg);
    if (this.#keys.size >= MAX_KEYS) this.#keys.delete(this.#keys.keys().next().value as string);
    this.#keys.set(id, key);
    return key;
  }
}

/** Unverified: which key to try, and that it is one which may be tried. */
function headerOf(proof: string): { alg: string; jwk: JWK } {
  let header: JsonObject;
  try {
    header = decodeProtectedHeader(proof) as JsonObject;
  } catch {
    throw new ProofRefused("the proof is malformed");
  }
  const { alg, typ, crit, jwk } = header;
  if (typ !== "dpop+jwt") throw new ProofRefused("the proof's `typ` must be dpop+jwt");
  if (typeof alg !== "string" || !(ALGORITHMS as readonly string[]).includes(alg)) {
    throw new ProofRefused("the proof's `alg` is not accepted");
  }
  if (crit !== undefined) throw new ProofRefused("the proof's `crit` is not accepted");
  return { alg, jwk: publicKey(jwk) };
}

function publicKey(jwk: unknown): JWK {
  if (!isJsonObject(jwk) || JSON.stringify(jwk).length > MAX_JWK_CHARS) {
    throw new ProofRefused("the proof's `jwk` must be a public key of bounded size");
  }
  // Whoever sends a private key has given it away.
  if (SECRET.some((member) => Object.hasOwn(jwk, member))) throw new ProofRefused("the proof's `jwk` must be public");
  const { kty } = jwk;
  const members = typeof kty === "string" && Object.hasOwn(PUBLIC, kty) ? (PUBLIC[kty] as readonly string[]) : [];
  const isWhole = members.every((member) => Object.hasOwn(jwk, member) && typeof jwk[member] === "string");
  if (members.length === 0 || !isWhole) throw new ProofRefused("the proof's `jwk` is no public key that is known here");
  return Object.fromEntries([["kty", kty], ...members.map((member) => [member, jwk[member]])]) as JWK;
}
