// The token endpoint: our proof of who we are, and what comes back.

import { randomUUID } from "node:crypto";
import type { JsonObject } from "../../mcp/index.js";
import { nonceFrom, proveDpop } from "./dpop.js";
import { OAuthError } from "./errors.js";
import { type Fetch, fetchJson, type JsonAnswer } from "./json-fetch.js";
import type { ServerMetadata } from "./server-metadata.js";
import type { ClientAuthMethod, ClientIdentity, RegisteredClient } from "./types.js";

export interface Tokens {
  readonly accessToken: string;
  readonly expiresAt?: number;
  readonly refreshToken?: string;
}

/** The endpoint's own word, such as `invalid_grant`: what to do next depends on it. */
export class TokenDenied extends OAuthError {
  readonly error: string;
  constructor(error: string, origin: string) {
    super("OAUTH_TOKEN", `${origin} gives no token: ${error}`);
    this.error = error;
  }
}

const MAX_TOKEN_CHARS = 16_384;
const ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const ASSERTION_SECONDS = 60;

export interface TokenRequest {
  readonly fetch: Fetch;
  readonly server: ServerMetadata;
  readonly client: RegisteredClient;
  readonly identity: ClientIdentity;
  readonly now: number;
  /** The key that the token is to be bound to. */
  readonly proofKey?: JsonObject | undefined;
}

export async function requestToken(to: TokenRequest, fields: Readonly<Record<string, string>>): Promise<Tokens> {
  const { server, now, proofKey } = to;
  const endpoint = server.tokenEndpoint;
  if (!endpoint) throw new OAuthError("OAUTH_METADATA", `${server.issuer} has no token endpoint`);
  checkEndpoint(endpoint, to.identity);
  let { status, body, headers } = await post(to, endpoint, fields);
  const nonce = nonceFrom(headers.get("dpop-nonce"));
  if (proofKey && body?.error === "use_dpop_nonce" && nonce !== undefined) {
    ({ status, body, headers } = await post(to, endpoint, fields, nonce));
  }
  const { origin } = endpoint;
  if (status !== 200 || !body) {
    const error = typeof body?.error === "string" ? body.error.replace(/[^\x21-\x7e]/g, "?").slice(0, 100) : "";
    throw new TokenDenied(error === "" ? `HTTP ${status}` : error, origin);
  }
  const { access_token: accessToken, token_type: type, expires_in: seconds, refresh_token: refreshToken } = body;
  if (!isToken(accessToken)) throw new OAuthError("OAUTH_TOKEN", `${origin} answered without a usable token`);
  const wanted = proofKey ? "DPoP" : "Bearer";
  if (typeof type !== "string" || type.toLowerCase() !== wanted.toLowerCase()) {
    throw new OAuthError("OAUTH_TOKEN", `${origin} answered with a token that is not of type ${wanted}`);
  }
  return {
    accessToken,
    ...(typeof seconds === "number" && seconds > 0 ? { expiresAt: now + seconds * 1_000 } : {}),
    ...(isToken(refreshToken) ? { refreshToken } : {}),
  };
}

async function post(
  to: TokenRequest,
  endpoint: URL,
  fields: Readonly<Record<string, string>>,
  nonce?: string,
): Promise<JsonAnswer> {
  const form = new URLSearchParams(fields);
  const headers = new Headers({ "content-type": "application/x-www-form-urlencoded" });
  await authenticate(to, form, headers);
  if (to.proofKey) headers.set("dpop", await proveDpop(to.proofKey, { method: "POST", url: endpoint, nonce }));
  // A code or a secret goes to the address we know and to no other.
  return fetchJson(to.fetch, endpoint, { method: "POST", headers, body: form.toString(), redirect: "manual" });
}

/** Secrets, assertions and refresh tokens of a registration go to its issuer's origin, or to the address named for it. */
function checkEndpoint(endpoint: URL, { issuer, tokenEndpoint }: ClientIdentity): void {
  const isKnown = tokenEndpoint !== undefined && endpoint.href === new URL(tokenEndpoint).href;
  if (issuer !== undefined && !isKnown) checkOrigin(endpoint, issuer, "tokenEndpoint");
}

/** Metadata alone never sends a credential to another origin than the issuer's: the operator names that address. */
export function checkOrigin(endpoint: URL, issuer: string, setting: string): void {
  if (endpoint.origin === new URL(issuer).origin) return;
  throw new OAuthError(
    "OAUTH_METADATA",
    `the metadata of ${issuer} names ${endpoint.href}, which is at another origin: if that is right, set \`${setting}\` to it`,
  );
}

function isToken(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_TOKEN_CHARS && /^[\x21-\x7e]+$/.test(value);
}

async function authenticate({ client, identity, server }: TokenRequest, form: URLSearchParams, headers: Headers) {
  const { method, id, secret = "" } = client;
  switch (method) {
    case "client_secret_basic":
      headers.set("authorization", `Basic ${Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString("base64")}`);
      return;
    case "client_secret_post":
      form.set("client_id", id);
      form.set("client_secret", secret);
      return;
    case "private_key_jwt":
      form.set("client_id", id);
      form.set("client_assertion_type", ASSERTION);
      form.set("client_assertion", await assertion(id, identity, server.issuer));
      return;
    case "none":
      form.set("client_id", id);
  }
}

async function assertion(id: string, { privateKey }: ClientIdentity, audience: string): Promise<string> {
  if (!privateKey) throw new OAuthError("OAUTH_REGISTRATION", "a private key is needed to prove who we are");
  const { importPKCS8, SignJWT } = await import("jose");
  const key = await importPKCS8(privateKey.pem, privateKey.algorithm);
  return new SignJWT({})
    .setProtectedHeader({
      alg: privateKey.algorithm,
      ...(privateKey.keyId === undefined ? {} : { kid: privateKey.keyId }),
    })
    .setIssuer(id)
    .setSubject(id)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(`${ASSERTION_SECONDS}s`)
    .setJti(randomUUID())
    .sign(key);
}

/** RFC 6749, 2.3.1: both halves are form-encoded before they are joined. */
function encoded(text: string): string {
  return new URLSearchParams({ "": text }).toString().slice(1);
}

/** How to prove who we are, given what we have and what the server takes. */
export function authMethod(server: ServerMetadata, has: { secret: boolean; key: boolean }): ClientAuthMethod {
  if (has.key) return "private_key_jwt";
  if (!has.secret) return "none";
  const taken = server.tokenAuthMethods ?? ["client_secret_basic"];
  return taken.includes("client_secret_basic") || !taken.includes("client_secret_post")
    ? "client_secret_basic"
    : "client_secret_post";
}
