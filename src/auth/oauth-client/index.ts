// OAuth 2.1 as both sides of Portcullis need it. As a client: our client library and the gateway towards its servers.
// As a resource server: what is known of an issuer.

export { OAuthClient, type OAuthClientOptions } from "./client.js";
export { OAuthError, type OAuthErrorCode } from "./errors.js";
export { type EnterpriseIdentity, exchangeIdToken } from "./exchange.js";
export { type Fetch, fetchJson, safeUrl } from "./json-fetch.js";
export { clientMetadata } from "./registration.js";
export { discoverServer, fetchKeys, type ServerMetadata } from "./server-metadata.js";
export { checkOrigin } from "./token-endpoint.js";
export { type ClientIdentity, type OAuthGrant, type GrantStore, type KeptGrant, memoryGrants } from "./types.js";
