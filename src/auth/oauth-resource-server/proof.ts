// Proof of possession (RFC 9449): the sender of a token that is bound to a key proves with every request that it holds
// the key. A copy of the token, or of a whole request, is not valid.

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
    // Two headers arrive as one text with a comma, which is not a JWT.
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
  // A private key in a request is disclosed.
  if (SECRET.some((member) => Object.hasOwn(jwk, member))) throw new ProofRefused("the proof's `jwk` must be public");
  const { kty } = jwk;
  const members = typeof kty === "string" && Object.hasOwn(PUBLIC, kty) ? (PUBLIC[kty] as readonly string[]) : [];
  const isWhole = members.every((member) => Object.hasOwn(jwk, member) && typeof jwk[member] === "string");
  if (members.length === 0 || !isWhole) throw new ProofRefused("the proof's `jwk` is not a supported public key");
  return Object.fromEntries([["kty", kty], ...members.map((member) => [member, jwk[member]])]) as JWK;
}

// What a proof must name as its `htu`: the address of the request as its caller wrote it. Only the operator knows that
// (the Host header is the sender's to choose, and a proxy may have taken a part of the path away).

const MAX_CHARS = 4_096;
const ADDRESS = /^(?:https?|wss?):\/\/(?!\/)[\x21-\x5b\x5d-\x7e]+$/i;
const UNRESERVED = /^[A-Za-z0-9._~-]$/;
const MCP_PATH = "/mcp";

/** The roots that a request's path is written behind: the resource's origin, and where a proxy takes its prefix away. */
export function proofRoots(resource: string, more: readonly string[] = []): string[] {
  const { origin, pathname } = new URL(resource);
  const prefix = pathname.endsWith(MCP_PATH) ? pathname.slice(0, -MCP_PATH.length) : "";
  return [...new Set([origin, `${origin}${prefix}`, ...more.map((root) => root.replace(/\/+$/, ""))])];
}

/** Whether `htu` names this path behind one of the roots. Query and fragment of `htu` do not count (RFC 9449, 4.3). */
export function isTarget(htu: string, path: string, roots: readonly string[]): boolean {
  const named = normal(htu);
  return named !== undefined && roots.some((root) => normal(root + path) === named);
}

/** RFC 3986, 6.2.2 and 6.2.3. A WebSocket begins as an HTTP request. Undefined for other texts. */
function normal(text: string): string | undefined {
  if (text.length > MAX_CHARS || !ADDRESS.test(text) || !URL.canParse(text)) return undefined;
  const url = new URL(text.replace(/^ws/i, "http"));
  if (url.username !== "" || url.password !== "") return undefined;
  const path = url.pathname.replace(/%[0-9A-Fa-f]{2}/g, (code) => {
    const character = String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return UNRESERVED.test(character) ? character : code.toUpperCase();
  });
  return `${url.origin}${path}`;
}

// Used proofs. INVARIANT: a proof that may still be valid is never forgotten; when the cache is full, new proofs
// are rejected.

/**
 * True to exactly the first caller with this id, for as long as `ttlMs`. Throws when it cannot tell. Ids have at most 128
 * visible ASCII characters.
 */
export type NonceStore = (id: string, ttlMs: number) => boolean | Promise<boolean>;

export interface ReplayBounds {
  readonly max?: number;
  /** Of one key, so that no other has to wait for it. */
  readonly maxOfOne?: number;
  readonly now?: () => number;
}

const REPLAY_DEFAULTS = { max: 200_000, maxOfOne: 50_000 };

/** In this process. What is before the last `:` of an id is whose it is. */
export function onceHere({ now = Date.now, ...bounds }: ReplayBounds = {}): NonceStore {
  const { max, maxOfOne } = { ...REPLAY_DEFAULTS, ...bounds };
  /** Each until when, in the order of their use: the first is the first to go. */
  const used = new Map<string, number>();
  const ofOne = new Map<string, number>();

  const forget = (at: number): void => {
    for (const [id, until] of used) {
      if (until > at) return;
      used.delete(id);
      const left = (ofOne.get(ownerOf(id)) ?? 0) - 1;
      if (left > 0) ofOne.set(ownerOf(id), left);
      else ofOne.delete(ownerOf(id));
    }
  };

  return (id, ttlMs) => {
    const at = now();
    forget(at);
    if (used.has(id)) return false;
    const own = ofOne.get(ownerOf(id)) ?? 0;
    if (own >= maxOfOne) throw new Fault("TooMany", `${maxOfOne} proofs of this key were used just now; try again`);
    if (used.size >= max) throw new Fault("Unavailable", "no more proofs can be remembered at the moment; try again");
    used.set(id, at + ttlMs);
    ofOne.set(ownerOf(id), own + 1);
    return true;
  };
}

function ownerOf(id: string): string {
  return id.slice(0, id.lastIndexOf(":"));
}
