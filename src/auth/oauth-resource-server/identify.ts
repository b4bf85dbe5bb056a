// OAuth access tokens as a way to be known here, beside API keys.

import { createHash } from "node:crypto";
import { Fault, isJsonObject, type JsonValue, steadyNow } from "../../mcp/index.js";
import type { HttpRequest, Peer } from "../../mcp/transports/index.js";
import type { Principal } from "../../policy/index.js";
import type { Identify } from "../index.js";
import type { Fetch } from "../oauth-client/index.js";
import { IssuerKeys } from "./issuer.js";
import { challenge, firstChallenge, metadataRoute, metadataUrl, type Scheme } from "./metadata.js";
import { principalOf, ScopeTable } from "./principal.js";
import { type NonceStore, ProofRefused, Proofs, proofRoots } from "./proof.js";
import type { OAuthSettings } from "./settings.js";
import {
  assertActive,
  boundTo,
  issuerOf,
  looksLikeJwt,
  MAX_TOKEN_CHARS,
  TokenRefused,
  type TrustedIssuer,
  verifyToken,
} from "./verify.js";

export interface OAuthIdentityOptions {
  readonly settings: OAuthSettings;
  /** Over the outbound dialer. */
  readonly fetch: Fetch;
  /** Who has no token but something else: API keys, the local user. */
  readonly others: Identify;
  readonly now?: () => number;
  /** Verified tokens kept, and how long at most. */
  readonly maxCached?: number;
  readonly cacheMs?: number;
  /** Tokens being verified at once; more are told to come back. */
  readonly maxVerifying?: number;
  readonly pauseMs?: number;
  /** What all replicas remember of proofs that were used. Without it each remembers its own. */
  readonly once?: NonceStore;
}

export interface OAuthIdentity {
  readonly identify: Identify;
  /** Answers `/.well-known/oauth-protected-resource…`. */
  readonly open: (request: HttpRequest) => boolean;
}

interface Kept {
  readonly principal: Principal;
  /** The thumbprint of the key that the token is bound to, where it is. */
  readonly key: string | undefined;
  readonly until: number;
}

interface Presented {
  readonly token: string;
  readonly scheme: Scheme;
}

const DEFAULTS = { maxCached: 10_000, cacheMs: 60_000, maxVerifying: 256 };
const PROOF_DEFAULTS = { maxAgeSeconds: 60, maxAheadSeconds: 5 };
const AUTHORIZATION = new RegExp(`^(Bearer|DPoP) +([\\x21-\\x7e]{1,${MAX_TOKEN_CHARS}})$`, "i");

export function oauthIdentity(options: OAuthIdentityOptions): OAuthIdentity {
  const { settings, fetch, others, now = Date.now, pauseMs } = options;
  const { maxCached, cacheMs, maxVerifying } = { ...DEFAULTS, ...options };
  const issuers = new Map<string, TrustedIssuer>();
  const tables = new Map<TrustedIssuer, ScopeTable>();
  for (const each of settings.issuers) {
    const { issuer, jwksUri } = each;
    const keys = new IssuerKeys({
      issuer,
      jwksUri,
      fetch,
      now: options.now ?? steadyNow,
      ...(pauseMs === undefined ? {} : { pauseMs }),
    });
    const trusted = { settings: each, keys };
    issuers.set(issuer, trusted);
    tables.set(trusted, new ScopeTable(each));
  }
  const metadata = metadataUrl(settings.resource);
  const scopes = [...new Set([...tables.values()].flatMap((table) => table.names))];
  // The first scope of each issuer is what a newcomer should ask for; more comes by step-up.
  const firstScopes = [...new Set([...tables.values()].flatMap((table) => table.names.slice(0, 1)))].join(" ");
  const cache = new Map<string, Kept>();
  /** A proof counts once, for the request or connection that it came with: that may be asked about more than once. */
  const proven = new WeakMap<Peer, string>();
  /** By issuer: one that does not answer must not keep the tokens of the others from being checked. */
  const verifying = new Map<TrustedIssuer, number>();
  const { maxAgeSeconds, maxAheadSeconds } = { ...PROOF_DEFAULTS, ...settings.proofs };
  const proofs = new Proofs({
    roots: proofRoots(settings.resource, settings.proofs?.roots),
    maxAgeMs: maxAgeSeconds * 1_000,
    maxAheadMs: maxAheadSeconds * 1_000,
    now,
    once: options.once,
  });

  const verify = async (token: string, id: string): Promise<Kept> => {
    const issuer = issuerOf(token, issuers);
    const others = verifying.get(issuer) ?? 0;
    if (others >= maxVerifying) throw new Fault("Unavailable", "too many tokens are being checked; try again");
    verifying.set(issuer, others + 1);
    try {
      const claims = await verifyToken(token, issuer, settings.resource, new Date(now()));
      const key = boundTo(claims);
      if (key === undefined && issuer.settings.dpop === "required") {
        throw new TokenRefused("the token is not bound to a key, and its issuer's have to be", { wantsProof: true });
      }
      await assertActive(token, issuer, fetch);
      const scheme = key === undefined ? "Bearer" : "DPoP";
      const principal = principalOf(
        claims,
        issuer.settings,
        tables.get(issuer) as ScopeTable,
        (error, description, scope) => challenge(scheme, metadata, { error, description, scope }),
      );
      if (cache.size >= maxCached) cache.delete(cache.keys().next().value as string);
      const kept = { principal, key, until: Math.min((claims.exp as number) * 1_000, now() + cacheMs) };
      cache.set(id, kept);
      return kept;
    } finally {
      verifying.set(issuer, (verifying.get(issuer) ?? 1) - 1);
    }
  };

  /** A bound token counts with a proof and no other way; one that is not bound cannot be proved. */
  const admitted = (
    peer: Peer,
    id: string,
    scheme: Scheme,
    { principal, key }: Kept,
  ): Principal | Promise<Principal> => {
    if (key === undefined) {
      if (scheme === "Bearer") return principal;
      throw new TokenRefused("the token is not bound to a key, so nothing can be proved; send it as `Bearer`");
    }
    if (scheme === "DPoP") {
      if (proven.get(peer) === id) return principal;
      return proofs.accept(peer, id, key).then(() => {
        proven.set(peer, id);
        return principal;
      });
    }
    throw new TokenRefused("the token is bound to a key; send it as `DPoP` with a proof", { wantsProof: true });
  };

  const byToken = (peer: Peer, { token, scheme }: Presented): Principal | Promise<Principal> => {
    // As the proof's `ath` has it.
    const id = createHash("sha256").update(token).digest("base64url");
    const kept = cache.get(id);
    if (kept && kept.until > now() && kept.key === undefined && scheme === "Bearer") return kept.principal;
    return slowly(peer, token, id, scheme);
  };

  const slowly = async (peer: Peer, token: string, id: string, scheme: Scheme): Promise<Principal> => {
    try {
      let kept = cache.get(id);
      if (!kept || kept.until <= now()) {
        cache.delete(id);
        kept = await verify(token, id);
      }
      return await admitted(peer, id, scheme, kept);
    } catch (error) {
      throw told(error, scheme);
    }
  };

  const told = (error: unknown, scheme: Scheme): unknown => {
    if (error instanceof ProofRefused) {
      const { message: description, error: name } = error;
      return refused(description, challenge("DPoP", metadata, { error: name, description }), PROVE);
    }
    if (!(error instanceof TokenRefused)) return error;
    const { message: description, wantsProof } = error;
    const answer = challenge(wantsProof ? "DPoP" : scheme, metadata, { error: "invalid_token", description });
    return refused(description, answer, wantsProof ? PROVE : GET);
  };

  /** An unauthenticated caller learns where to request tokens. */
  const pointed = (error: unknown): unknown =>
    error instanceof Fault && error.type === "AuthenticationError"
      ? refused(error.message, firstChallenge(settings, metadata, firstScopes), GET)
      : error;

  return {
    open: metadataRoute(settings, scopes),
    identify: (peer, auth, meta) => {
      const presented = presentedBy(peer, auth);
      if (presented !== undefined) return byToken(peer, presented);
      try {
        const known = others(peer, auth, meta);
        if (!(known instanceof Promise)) return known;
        return known.catch((error: unknown) => {
          throw pointed(error);
        });
      } catch (error) {
        throw pointed(error);
      }
    },
  };
}

const GET = "Get an access token from an authorization server named in the protected resource metadata";
const PROVE = "Send a token that is bound to your key as `Authorization: DPoP …`, with a fresh proof as `DPoP`";

function refused(reason: string, authenticate: string, suggestion: string): Fault {
  return new Fault("AuthenticationError", reason, { authenticate, suggestions: [suggestion] });
}

/** The JWT, where exactly one credential is given and it is one. */
function presentedBy(peer: Peer, auth: JsonValue | undefined): Presented | undefined {
  const header = peer.headers?.authorization;
  const [, scheme = "", fromHeader] = header === undefined ? [] : (AUTHORIZATION.exec(header) ?? []);
  const field = isJsonObject(auth) && auth.type === "bearer" && typeof auth.token === "string" ? auth.token : undefined;
  const token = fromHeader ?? (header === undefined ? field : undefined);
  // Two different credentials are rejected: which of them is meant is ambiguous.
  if (token === undefined || (auth !== undefined && field !== token)) return undefined;
  if (!looksLikeJwt(token)) return undefined;
  return { token, scheme: scheme.toLowerCase() === "dpop" ? "DPoP" : "Bearer" };
}
