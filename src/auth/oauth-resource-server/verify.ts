// Is this a token that one of our issuers made, for us, and is it in force? What a token says about where its keys are
// (`jku`, `x5u`, `jwk`) is never read.

import { decodeJwt, decodeProtectedHeader, errors, type JWTPayload, jwtVerify } from "jose";
import { Fault, isJsonObject } from "../../mcp/index.js";
import { basicAuthorization, checkOrigin, type Fetch, fetchJson, OAuthError, safeUrl } from "../oauth-client/index.js";
import type { IssuerKeys } from "./issuer.js";
import { ALGORITHMS, type IssuerSettings } from "./settings.js";

/** Larger ones are refused unread. */
export const MAX_TOKEN_CHARS = 8_192;
const JWT = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/;
const CLOCK_SKEW_S = 30;
/** Issuers that follow RFC 9068 say at+jwt; many say JWT, and some nothing. Anything else is not an access token. */
const TYPES = new Set([undefined, "at+jwt", "application/at+jwt", "jwt"]);

export function looksLikeJwt(token: string): boolean {
  return token.length <= MAX_TOKEN_CHARS && JWT.test(token);
}

/** Why a token does not count, in words that may be told: they say nothing that its holder cannot read in it. */
export class TokenRefused extends Error {
  readonly code = "TOKEN_REFUSED";
  /** Its holder is told to come with a bound token and a proof, whatever it came with. */
  readonly wantsProof: boolean;
  constructor(message: string, { wantsProof = false } = {}) {
    super(message);
    this.wantsProof = wantsProof;
  }
}

export interface TrustedIssuer {
  readonly settings: IssuerSettings;
  readonly keys: IssuerKeys;
}

/** Whose the token claims to be; one of ours, and nothing is verified yet. */
export function issuerOf(token: string, issuers: ReadonlyMap<string, TrustedIssuer>): TrustedIssuer {
  const issuer = issuers.get(claimedIssuer(token) ?? "");
  if (!issuer) throw new TokenRefused("the token's issuer is not known here");
  return issuer;
}

/** The claims of a token that its issuer signed for this resource. */
export async function verifyToken(
  token: string,
  { settings, keys }: TrustedIssuer,
  resource: string,
  now: Date,
): Promise<JWTPayload> {
  try {
    const { payload } = await jwtVerify(token, keys.keyFor, {
      algorithms: [...(settings.algorithms ?? ALGORITHMS)],
      issuer: settings.issuer,
      audience: [resource, ...(settings.audience ?? [])],
      clockTolerance: CLOCK_SKEW_S,
      currentDate: now,
      requiredClaims: ["exp", "sub"],
    });
    return payload;
  } catch (error) {
    throw refusal(error);
  }
}

/** Unverified: it only says whose keys to try, and the issuer must be one of ours. */
function claimedIssuer(token: string): string | undefined {
  try {
    const { alg, typ, crit } = decodeProtectedHeader(token);
    if (!(ALGORITHMS as readonly unknown[]).includes(alg)) throw new TokenRefused("the token's `alg` is not accepted");
    if (crit !== undefined || !TYPES.has(typ?.toLowerCase())) throw new TokenRefused("not an access token");
    return decodeJwt(token).iss;
  } catch (error) {
    if (error instanceof TokenRefused) throw error;
    throw new TokenRefused("the token is malformed");
  }
}

function refusal(error: unknown): Error {
  if (error instanceof errors.JWTExpired) return new TokenRefused("the token has expired");
  if (error instanceof errors.JWTClaimValidationFailed) return new TokenRefused(claimProblem(error.claim));
  if (error instanceof errors.JOSEAlgNotAllowed) return new TokenRefused("the token's `alg` is not accepted");
  if (error instanceof errors.JOSEError) return new TokenRefused("the token's signature is not the issuer's");
  if (error instanceof OAuthError || !(error instanceof TypeError)) {
    // Ours to mend, not the caller's.
    return new Fault("Unavailable", "tokens cannot be checked at the moment: their issuer does not answer", {
      cause: error,
    });
  }
  return new TokenRefused("the token's signature is not the issuer's");
}

function claimProblem(claim: string): string {
  switch (claim) {
    case "aud":
      return "the token is for another audience";
    case "nbf":
      return "the token is not valid yet";
    default:
      return `the token's \`${claim}\` is missing or not accepted`;
  }
}

// Whether a token is bound to a key. A bound token is valid only with a proof by that key; one bound in a way that
// cannot be checked here is rejected.

const THUMBPRINT = /^[A-Za-z0-9_-]{43}$/;

/** The thumbprint of the key (RFC 7638, SHA-256); undefined for a token that is anybody's who holds it. */
export function boundTo({ cnf }: Readonly<JWTPayload>): string | undefined {
  if (cnf === undefined) return undefined;
  const methods = isJsonObject(cnf) ? Object.keys(cnf) : [];
  const thumbprint = isJsonObject(cnf) ? cnf.jkt : undefined;
  // Each method that is named has to hold, so one that is not known here spoils the rest.
  if (methods.length === 1 && typeof thumbprint === "string" && THUMBPRINT.test(thumbprint)) return thumbprint;
  throw new TokenRefused("the token is bound by a `cnf` that cannot be checked here; `jkt` alone can");
}

// A signed token stays good until it expires. Where an operator wants a revocation to count sooner, the issuer is asked.

/** RFC 7662. Throws unless the issuer says that the token is active. */
export async function assertActive(token: string, { settings, keys }: TrustedIssuer, fetch: Fetch): Promise<void> {
  const { introspection } = settings;
  if (!introspection) return;
  const authorization = basicAuthorization(introspection.clientId, introspection.clientSecret);
  try {
    const { status, body } = await fetchJson(fetch, await endpointOf({ settings, keys }), {
      method: "POST",
      headers: { authorization, "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ token, token_type_hint: "access_token" }).toString(),
      redirect: "manual",
    });
    if (status === 200 && body?.active === false) throw new TokenRefused("the token was revoked");
    if (status !== 200 || body?.active !== true) {
      throw new OAuthError("OAUTH_METADATA", `${settings.issuer} answered introspection with HTTP ${status}`);
    }
  } catch (error) {
    if (error instanceof TokenRefused) throw error;
    throw new Fault("Unavailable", "tokens cannot be checked at the moment: their issuer does not answer", {
      cause: error,
    });
  }
}

/** Receives our client's secret and the caller's token: what the operator configured, or an address of the issuer's own origin. */
async function endpointOf({ settings, keys }: Pick<TrustedIssuer, "settings" | "keys">): Promise<URL> {
  const configured = settings.introspection?.endpoint;
  if (configured !== undefined) return safeUrl(configured, "`introspection.endpoint`");
  const { introspectionEndpoint } = await keys.metadata();
  if (!introspectionEndpoint) throw new OAuthError("OAUTH_METADATA", `${settings.issuer} has no introspection`);
  checkOrigin(introspectionEndpoint, settings.issuer, "introspection.endpoint");
  return introspectionEndpoint;
}
