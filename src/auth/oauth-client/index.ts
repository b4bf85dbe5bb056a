// OAuth 2.1 as both sides of Portcullis need it. As a client: our client library and the gateway towards its servers.
// As a resource server: what is known of an issuer.

export { OAuthClient, type OAuthClientOptions } from "./client.js";
export { type Fetch, fetchJson, OAuthError, type OAuthErrorCode, safeUrl } from "./json-fetch.js";
export { discoverServer, fetchKeys, type ServerMetadata } from "./metadata.js";
export {
  basicAuthorization,
  checkOrigin,
  clientMetadata,
  type EnterpriseIdentity,
  exchangeIdToken,
} from "./token-endpoint.js";
export { type ClientIdentity, type GrantStore, type KeptGrant, memoryGrants, type OAuthGrant } from "./types.js";
