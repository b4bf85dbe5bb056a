// Being known as a client: registered beforehand, by a document that describes us, or registered now (RFC 7591).

import { OAuthError } from "./errors.js";
import { type Fetch, fetchJson } from "./json-fetch.js";
import type { ServerMetadata } from "./server-metadata.js";
import { authMethod } from "./token-endpoint.js";
import type { ClientAuthMethod, ClientIdentity, RegisteredClient } from "./types.js";

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
    `${server.issuer} lets nobody register; register a client there and configure its id`,
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
