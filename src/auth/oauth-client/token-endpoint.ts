// The token endpoint: our proof of who we are, and what comes back.

import { randomUUID } from "node:crypto";
import type { JsonObject } from "../../mcp/index.js";
import { nonceFrom, proveDpop } from "./dpop.js";
import { type Fetch, fetchJson, type JsonAnswer, OAuthError, safeUrl } from "./json-fetch.js";
import type { ServerMetadata } from "./metadata.js";
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
      headers.set("authorization", basicAuthorization(id, secret));
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
export function basicAuthorization(id: string, secret: string): string {
  const encoded = (text: string): string => new URLSearchParams({ "": text }).toString().slice(1);
  return `Basic ${Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString("base64")}`;
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

// Being known as a client: registered beforehand, by a document that describes us, or registered now (RFC 7591).

const METHODS: readonly ClientAuthMethod[] = ["none", "client_secret_basic", "client_secret_post"];

export async function clientFor(
  fetch: Fetch,
  server: ServerMetadata,
  identity: ClientIdentity,
  redirectUri: string | undefined,
): Promise<RegisteredClient> {
  const { clientId, clientSecret, privateKey, metadataUrl } = identity;
  if (clientId !== undefined) {
    const method = authMethod(server, { secret: clientSecret !== undefined, key: privateKey !== undefined });
    return { id: clientId, method, ...(clientSecret === undefined ? {} : { secret: clientSecret }) };
  }
  if (metadataUrl !== undefined && server.takesClientMetadataUrl) return { id: metadataUrl, method: "none" };
  if (server.registrationEndpoint && redirectUri !== undefined) {
    return register(fetch, server, server.registrationEndpoint, identity, redirectUri);
  }
  throw new OAuthError(
    "OAUTH_REGISTRATION",
    `${server.issuer} does not allow dynamic registration; register a client there and configure its id`,
  );
}

/** What describes us, whether it is registered or published. */
export function clientMetadata(name: string, redirectUris: readonly string[], method: ClientAuthMethod = "none") {
  const isNative = redirectUris.every((uri) => /^http:\/\/(127\.0\.0\.1|localhost|\[::1\])[:/]/.test(uri));
  return {
    client_name: name,
    redirect_uris: [...redirectUris],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: method,
    application_type: isNative ? "native" : "web",
  };
}

async function register(
  fetch: Fetch,
  server: ServerMetadata,
  endpoint: URL,
  { name = "Portcullis" }: ClientIdentity,
  redirectUri: string,
): Promise<RegisteredClient> {
  const wanted = METHODS.find((method) => (server.tokenAuthMethods ?? METHODS).includes(method)) ?? "none";
  const { status, body } = await fetchJson(fetch, endpoint, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(clientMetadata(name, [redirectUri], wanted)),
    redirect: "manual",
  });
  const { client_id: id, client_secret: secret, token_endpoint_auth_method: given } = body ?? {};
  if ((status !== 200 && status !== 201) || typeof id !== "string" || id === "") {
    throw new OAuthError("OAUTH_REGISTRATION", `${endpoint.origin} did not register us (HTTP ${status})`);
  }
  const hasSecret = typeof secret === "string" && secret !== "";
  const method =
    METHODS.find((each) => each === given) ??
    authMethod(server, { secret: hasSecret && wanted !== "none", key: false });
  return { id, method, redirectUri, ...(hasSecret ? { secret } : {}) };
}

// Enterprise-managed authorization: an employer's identity provider, where the person is logged in already, vouches for
// them towards the issuer of one resource (RFC 8693, identity assertion authorization grant).

export interface EnterpriseIdentity {
  /** The identity provider's token endpoint. */
  readonly tokenEndpoint: string;
  /** Our client there. */
  readonly clientId: string;
  readonly clientSecret?: string;
  /** The person's ID token. Asked for each time, because it ends. */
  readonly idToken: () => string | Promise<string>;
}

const TOKEN_TYPE = "urn:ietf:params:oauth:token-type";

export async function exchangeIdToken(
  fetch: Fetch,
  { tokenEndpoint, clientId, clientSecret, idToken }: EnterpriseIdentity,
  { issuer, resource }: { readonly issuer: string; readonly resource: string },
): Promise<string> {
  const url = safeUrl(tokenEndpoint, "the identity provider's token endpoint");
  const { status, body } = await fetchJson(fetch, url, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({
      grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
      requested_token_type: `${TOKEN_TYPE}:id-jag`,
      audience: issuer,
      resource,
      subject_token: await idToken(),
      subject_token_type: `${TOKEN_TYPE}:id_token`,
      client_id: clientId,
      ...(clientSecret === undefined ? {} : { client_secret: clientSecret }),
    }).toString(),
    redirect: "manual",
  });
  const { access_token: word, issued_token_type: type } = body ?? {};
  if (status === 200 && typeof word === "string" && type === `${TOKEN_TYPE}:id-jag`) return word;
  throw new OAuthError("OAUTH_TOKEN", `${url.origin} does not vouch for this person at ${issuer} (HTTP ${status})`);
}
