// The token endpoint: our proof of who we are, and what comes back.

import { randomUUID } from "node:crypto";
import { OAuthError } from "./errors.js";
import { type Fetch, fetchJson } from "./json-fetch.js";
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
}

export async function requestToken(to: TokenRequest, fields: Readonly<Record<string, string>>): Promise<Tokens> {
  const { server, now, fetch } = to;
  if (!server.tokenEndpoint) throw new OAuthError("OAUTH_METADATA", `${server.issuer} has no token endpoint`);
  const form = new URLSearchParams(fields);
  const headers = new Headers({ "content-type": "application/x-www-form-urlencoded" });
  await prove(to, form, headers);
  const { status, body } = await fetchJson(fetch, server.tokenEndpoint, {
    method: "POST",
    headers,
    body: form.toString(),
    // A code or a secret goes to the address we know and to no other.
    redirect: "manual",
  });
  const origin = server.tokenEndpoint.origin;
  if (status !== 200 || !body) {
    const error = typeof body?.error === "string" ? body.error.replace(/[^\x21-\x7e]/g, "?").slice(0, 100) : "";
    throw new TokenDenied(error === "" ? `HTTP ${status}` : error, origin);
  }
  const { access_token: accessToken, token_type: type, expires_in: seconds, refresh_token: refreshToken } = body;
  if (!isToken(accessToken)) throw new OAuthError("OAUTH_TOKEN", `${origin} answered without a usable token`);
  if (typeof type !== "string" || type.toLowerCase() !== "bearer") {
    throw new OAuthError("OAUTH_TOKEN", `${origin} answered with a token that is not of type Bearer`);
  }
  return {
    accessToken,
    ...(typeof seconds === "number" && seconds > 0 ? { expiresAt: now + seconds * 1_000 } : {}),
    ...(isToken(refreshToken) ? { refreshToken } : {}),
  };
}

function isToken(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_TOKEN_CHARS && /^[\x21-\x7e]+$/.test(value);
}

async function prove({ client, identity, server }: TokenRequest, form: URLSearchParams, headers: Headers) {
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
    .setProtectedHeader({ alg: privateKey.algorithm })
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
