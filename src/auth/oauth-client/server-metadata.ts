// An authorization server's own description: RFC 8414, or OpenID Connect discovery.

import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { OAuthError } from "./errors.js";
import { type Fetch, fetchJson, safeUrl } from "./json-fetch.js";

export interface ServerMetadata {
  readonly issuer: string;
  readonly authorizationEndpoint?: URL;
  readonly tokenEndpoint?: URL;
  readonly registrationEndpoint?: URL;
  readonly introspectionEndpoint?: URL;
  readonly jwksUri?: URL;
  readonly scopesSupported?: readonly string[];
  readonly grantTypes?: readonly string[];
  readonly tokenAuthMethods?: readonly string[];
  readonly challengeMethods?: readonly string[];
  readonly dpopAlgorithms?: readonly string[];
  /** RFC 9207: every authorization response names its issuer. */
  readonly namesIssuer: boolean;
  readonly takesClientMetadataUrl: boolean;
}

/** Where an issuer's description may stand, in the order in which they are tried. */
export function metadataUrls(issuer: URL): URL[] {
  const path = issuer.pathname.replace(/\/$/, "");
  const at = (pathname: string): URL => new URL(pathname, issuer.origin);
  if (path === "") return [at("/.well-known/oauth-authorization-server"), at("/.well-known/openid-configuration")];
  return [
    at(`/.well-known/oauth-authorization-server${path}`),
    at(`/.well-known/openid-configuration${path}`),
    at(`${path}/.well-known/openid-configuration`),
  ];
}

/** Undefined when the issuer has none. Throws when it has one that is somebody else's: RFC 8414, 3.3. */
export async function discoverServer(fetch: Fetch, issuer: string): Promise<ServerMetadata | undefined> {
  for (const url of metadataUrls(safeUrl(issuer, "the issuer"))) {
    const { status, body } = await fetchJson(fetch, url);
    if (status >= 500) throw new OAuthError("OAUTH_METADATA", `${url.href} answered HTTP ${status}`);
    if (status !== 200 || !body) continue;
    if (body.issuer !== issuer) {
      const named = typeof body.issuer === "string" ? body.issuer.slice(0, 200) : "nobody";
      throw new OAuthError("OAUTH_METADATA", `${url.href} describes ${named}, not the issuer ${issuer}`);
    }
    return readMetadata(body, issuer);
  }
  return undefined;
}

function readMetadata(body: JsonObject, issuer: string): ServerMetadata {
  const address = (field: string): URL | undefined =>
    body[field] === undefined || body[field] === null ? undefined : safeUrl(body[field], `\`${field}\` of ${issuer}`);
  return {
    issuer,
    ...defined("authorizationEndpoint", address("authorization_endpoint")),
    ...defined("tokenEndpoint", address("token_endpoint")),
    ...defined("registrationEndpoint", address("registration_endpoint")),
    ...defined("introspectionEndpoint", address("introspection_endpoint")),
    ...defined("jwksUri", address("jwks_uri")),
    ...defined("scopesSupported", texts(body.scopes_supported)),
    ...defined("grantTypes", texts(body.grant_types_supported)),
    ...defined("tokenAuthMethods", texts(body.token_endpoint_auth_methods_supported)),
    ...defined("challengeMethods", texts(body.code_challenge_methods_supported)),
    ...defined("dpopAlgorithms", texts(body.dpop_signing_alg_values_supported)),
    namesIssuer: body.authorization_response_iss_parameter_supported === true,
    takesClientMetadataUrl: body.client_id_metadata_document_supported === true,
  };
}

export function defined<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}

const MAX_TEXTS = 1_000;

export function texts(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.slice(0, MAX_TEXTS).filter((each): each is string => typeof each === "string" && each.length <= 1_024);
}

/** Public keys of an issuer as they were published; `oct` and private keys have no business there. */
export async function fetchKeys(fetch: Fetch, url: URL, maxKeys = 100): Promise<JsonObject[]> {
  const { status, body } = await fetchJson(fetch, url);
  const keys = status === 200 && Array.isArray(body?.keys) ? body.keys : undefined;
  if (!keys) throw new OAuthError("OAUTH_METADATA", `${url.href} answered HTTP ${status} and no set of keys`);
  return keys.slice(0, maxKeys).filter((key): key is JsonObject => isJsonObject(key) && key.kty !== "oct");
}
