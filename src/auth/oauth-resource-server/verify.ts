// Is this a token that one of our issuers made, for us, and is it in force? What a token says about where its keys are
// (`jku`, `x5u`, `jwk`) is never read.

import { decodeProtectedHeader, decodeJwt, errors, type JWTPayload, jwtVerify } from "jose";
import { OAuthError } from "../oauth-client/index.js";
import { Fault } from "../../mcp/index.js";
import type { IssuerKeys } from "./issuer.js";
import { ALGORITHMS, type IssuerSettings } from "./settings.js";

/** Larger ones are refused unread. */
export const MAX_TOKEN_CHARS = 8_192;
const JWT = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/;
const CLOCK_SKEW_S = 30;
/** Issuers that follow RFC 9068 say at+jwt; many say JWT, and some nothing. Anything else is no access token. */
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
    if (crit !== undefined || !TYPES.has(typ?.toLowerCase())) throw new TokenRefused("this is no access token");
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
