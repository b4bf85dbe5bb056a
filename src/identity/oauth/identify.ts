// OAuth access tokens as a way to be known here, beside API keys.

import { createHash } from "node:crypto";
import type { Principal } from "../../gate/index.js";
import type { Fetch } from "../../oauth/index.js";
import { Fault, isJsonObject, type JsonValue } from "../../protocol/index.js";
import type { HttpRequest, Peer } from "../../transport/index.js";
import type { Identify } from "../index.js";
import { assertActive } from "./introspection.js";
import { IssuerKeys } from "./issuer.js";
import { bearerChallenge, metadataDoor, metadataUrl } from "./metadata.js";
import { principalOf, ScopeTable } from "./principal.js";
import type { OAuthSettings } from "./settings.js";
import { looksLikeJwt, MAX_TOKEN_CHARS, TokenRefused, type TrustedIssuer, verifyToken } from "./verify.js";

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
}

export interface OAuthIdentity {
  readonly identify: Identify;
  /** Answers `/.well-known/oauth-protected-resource…`. */
  readonly open: (request: HttpRequest) => boolean;
}

interface Kept {
  readonly principal: Principal;
  readonly until: number;
}

const DEFAULTS = { maxCached: 10_000, cacheMs: 60_000, maxVerifying: 256 };
const BEARER = new RegExp(`^Bearer +([\\x21-\\x7e]{1,${MAX_TOKEN_CHARS}})$`, "i");

export function oauthIdentity(options: OAuthIdentityOptions): OAuthIdentity {
  const { settings, fetch, others, now = Date.now, pauseMs } = options;
  const { maxCached, cacheMs, maxVerifying } = { ...DEFAULTS, ...options };
  const issuers = new Map<string, TrustedIssuer>();
  const tables = new Map<TrustedIssuer, ScopeTable>();
  for (const each of settings.issuers) {
    const { issuer, jwksUri } = each;
    const keys = new IssuerKeys({ issuer, jwksUri, fetch, now, ...(pauseMs === undefined ? {} : { pauseMs }) });
    const trusted = { settings: each, keys };
    issuers.set(issuer, trusted);
    tables.set(trusted, new ScopeTable(each));
  }
  const metadata = metadataUrl(settings.resource);
  const scopes = [...new Set([...tables.values()].flatMap((table) => table.names))];
  // The first scope of each issuer is what a newcomer should ask for; more comes by step-up.
  const firstScopes = [...new Set([...tables.values()].flatMap((table) => table.names.slice(0, 1)))].join(" ");
  const cache = new Map<string, Kept>();
  let verifying = 0;

  const verify = async (token: string, id: string): Promise<Principal> => {
    if (verifying >= maxVerifying) throw new Fault("Unavailable", "too many tokens are being checked; try again");
    verifying++;
    try {
      const { issuer, claims } = await verifyToken(token, issuers, settings.resource, new Date(now()));
      await assertActive(token, issuer, fetch);
      const principal = principalOf(
        claims,
        issuer.settings,
        tables.get(issuer) as ScopeTable,
        (error, description, scope) => bearerChallenge(metadata, { error, description, scope }),
      );
      if (cache.size >= maxCached) cache.delete(cache.keys().next().value as string);
      cache.set(id, { principal, until: Math.min((claims.exp as number) * 1_000, now() + cacheMs) });
      return principal;
    } finally {
      verifying--;
    }
  };

  const byToken = (token: string): Principal | Promise<Principal> => {
    const id = createHash("sha256").update(token).digest("base64");
    const kept = cache.get(id);
    if (kept && kept.until > now()) return kept.principal;
    cache.delete(id);
    return verify(token, id).catch((error: unknown) => {
      if (!(error instanceof TokenRefused)) throw error;
      throw refused(error.message, bearerChallenge(metadata, { error: "invalid_token", description: error.message }));
    });
  };

  /** Whoever is not let in learns where tokens are to be had. */
  const pointed = (error: unknown): unknown =>
    error instanceof Fault && error.type === "AuthenticationError"
      ? refused(error.message, bearerChallenge(metadata, { scope: firstScopes }))
      : error;

  return {
    open: metadataDoor(settings, scopes),
    identify: (peer, auth, meta) => {
      const token = tokenOf(peer, auth);
      if (token !== undefined) return byToken(token);
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

function refused(reason: string, authenticate: string): Fault {
  return new Fault("AuthenticationError", reason, {
    authenticate,
    suggestions: ["Get an access token from an authorization server named in the protected resource metadata"],
  });
}

/** The JWT, where exactly one credential is given and it is one. */
function tokenOf(peer: Peer, auth: JsonValue | undefined): string | undefined {
  const header = peer.headers?.authorization;
  const [, fromHeader] = header === undefined ? [] : (BEARER.exec(header) ?? []);
  const field = isJsonObject(auth) && auth.type === "bearer" && typeof auth.token === "string" ? auth.token : undefined;
  const token = fromHeader ?? (header === undefined ? field : undefined);
  // Two credentials that differ are none: nobody can tell which of them was meant.
  if (token === undefined || (auth !== undefined && field !== token)) return undefined;
  return looksLikeJwt(token) ? token : undefined;
}
