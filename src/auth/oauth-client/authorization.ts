// The authorization request a person answers, and the check that the answer is the answer to it.

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { OAuthError } from "./json-fetch.js";
import type { ServerMetadata } from "./metadata.js";

export interface AuthorizationRequest {
  readonly url: URL;
  readonly verifier: string;
  readonly state: string;
}

export function authorizationRequest(
  server: ServerMetadata,
  fields: { clientId: string; redirectUri: string; resource: string; scopes: readonly string[] },
): AuthorizationRequest {
  if (!server.authorizationEndpoint) {
    throw new OAuthError("OAUTH_METADATA", `${server.issuer} has no authorization endpoint`);
  }
  const verifier = randomBytes(32).toString("base64url");
  const state = randomBytes(32).toString("base64url");
  const url = new URL(server.authorizationEndpoint);
  const set = (name: string, value: string): void => url.searchParams.set(name, value);
  set("response_type", "code");
  set("client_id", fields.clientId);
  set("redirect_uri", fields.redirectUri);
  set("state", state);
  set("code_challenge", createHash("sha256").update(verifier).digest("base64url"));
  set("code_challenge_method", "S256");
  set("resource", fields.resource);
  if (fields.scopes.length > 0) set("scope", fields.scopes.join(" "));
  // OpenID Connect gives a refresh token only to whom the person agreed to once more.
  if (fields.scopes.includes("offline_access")) set("prompt", "consent");
  return { url, verifier, state };
}

/** The code, when the answer carries our state and comes from the issuer that was asked (RFC 9207). */
export function codeFrom(answer: URLSearchParams, state: string, server: ServerMetadata): string {
  const refuse = (why: string): never => {
    throw new OAuthError("OAUTH_AUTHORIZATION", `the answer of ${server.issuer} is not used: ${why}`);
  };
  if (!same(answer.get("state") ?? "", state)) refuse("it does not carry our state");
  const issuer = answer.get("iss");
  if (issuer === null ? server.namesIssuer : issuer !== server.issuer) refuse("it does not name the issuer we asked");
  const error = answer.get("error");
  if (error !== null) refuse(`it says ${error.replace(/[^\x21-\x7e]/g, "?").slice(0, 100)}`);
  return answer.get("code") || refuse("it has no code");
}

function same(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

// What a server says in `WWW-Authenticate`: where its metadata is, which scope it wants.

export interface BearerChallenge {
  /** It wants tokens that are bound to a key. */
  readonly isDpop?: true;
  readonly resourceMetadata?: string;
  readonly scope?: string;
  readonly error?: string;
}

const MAX_CHARS = 8_192;
const PART = /([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?\s*,?\s*/y;

/** The first challenge of scheme Bearer or DPoP; an empty one when there is none. */
export function readChallenge(header: string | undefined): BearerChallenge {
  const found: Record<string, string> = {};
  const text = (header ?? "").slice(0, MAX_CHARS).trim();
  let scheme = "";
  let ours: string | undefined;
  PART.lastIndex = 0;
  for (let match = PART.exec(text); match?.[1] !== undefined; match = PART.exec(text)) {
    const [, name, quoted, plain] = match;
    const value = quoted?.replace(/\\(.)/g, "$1") ?? plain;
    if (value === undefined) {
      scheme = name.toLowerCase();
      if (scheme === "bearer" || scheme === "dpop") ours ??= scheme;
    } else if (scheme === ours && !Object.hasOwn(found, name.toLowerCase())) found[name.toLowerCase()] = value;
    if (PART.lastIndex >= text.length) break;
  }
  return {
    ...(ours === "dpop" ? { isDpop: true } : {}),
    ...(found.resource_metadata === undefined ? {} : { resourceMetadata: found.resource_metadata }),
    ...(found.scope === undefined ? {} : { scope: found.scope }),
    ...(found.error === undefined ? {} : { error: found.error }),
  };
}
