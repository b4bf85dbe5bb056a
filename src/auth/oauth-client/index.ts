// OAuth 2.1 as both sides of Portcullis need it. As a client: our client library and the gateway towards its servers.
// As a resource server: what is known of an issuer.

export { OAuthClient, type OAuthClientOptions } from "./client.js";
export { type Fetch, fetchJson, OAuthError, type OAuthErrorCode, safeUrl } from "./json-fetch.js";
export {
  basicAuthorization,
  checkOrigin,
  clientMetadata,
  type EnterpriseIdentity,
  exchangeIdToken,
} from "./token-endpoint.js";
export { discoverServer, fetchKeys, type ServerMetadata } from "./metadata.js";
export { type ClientIdentity, type OAuthGrant, type GrantStore, type KeptGrant, memoryGrants } from "./types.js";
