// An authorization server's own description: RFC 8414, or OpenID Connect discovery.

import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { BearerChallenge } from "./authorization.js";
import { DPOP_ALGORITHM } from "./dpop.js";
import { type Fetch, fetchJson, OAuthError, safeUrl } from "./json-fetch.js";

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

/** Undefined when the issuer has none. Throws when the metadata names another issuer: RFC 8414, 3.3. */
export async function discoverServer(fetch: Fetch, issuer: string): Promise<ServerMetadata | undefined> {
  for (const url of metadataUrls(safeUrl(issuer, "the issuer"))) {
    const { status, body } = await fetchJson(fetch, url);
    if (status >= 500) throw new OAuthError("OAUTH_METADATA", `${url.href} answered HTTP ${status}`);
    if (status !== 200 || !body) continue;
    if (body.issuer !== issuer) {
      const named = typeof body.issuer === "string" ? body.issuer.slice(0, 200) : "no issuer";
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
    ...memberIfSet("authorizationEndpoint", address("authorization_endpoint")),
    ...memberIfSet("tokenEndpoint", address("token_endpoint")),
    ...memberIfSet("registrationEndpoint", address("registration_endpoint")),
    ...memberIfSet("introspectionEndpoint", address("introspection_endpoint")),
    ...memberIfSet("jwksUri", address("jwks_uri")),
    ...memberIfSet("scopesSupported", texts(body.scopes_supported)),
    ...memberIfSet("grantTypes", texts(body.grant_types_supported)),
    ...memberIfSet("tokenAuthMethods", texts(body.token_endpoint_auth_methods_supported)),
    ...memberIfSet("challengeMethods", texts(body.code_challenge_methods_supported)),
    ...memberIfSet("dpopAlgorithms", texts(body.dpop_signing_alg_values_supported)),
    namesIssuer: body.authorization_response_iss_parameter_supported === true,
    takesClientMetadataUrl: body.client_id_metadata_document_supported === true,
  };
}

export function memberIfSet<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
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

// From a server that says 401 to who issues its tokens: RFC 9728, and what servers did before it.

export interface Discovered {
  /** As the server publishes it; it is sent along in exactly this form. */
  readonly resource: string;
  readonly server: ServerMetadata;
  /** False for a server of the first revision that has no metadata at all: its endpoints are guessed. */
  readonly isDescribed: boolean;
  readonly scopes: readonly string[] | undefined;
  /** What the server says of tokens that are bound to a key. */
  readonly bound?: Bound;
}

type Bound = "required" | "accepted";

interface Resource {
  readonly resource: string;
  /** At least one. */
  readonly issuers: readonly string[];
  readonly scopes: readonly string[] | undefined;
  readonly bound?: Bound;
}

/** `known` is the issuer we are registered with: no other is asked for tokens, whatever the server's metadata says. */
export async function discover(
  fetch: Fetch,
  url: URL,
  challenge: BearerChallenge,
  known?: string,
): Promise<Discovered> {
  const found = await findResource(fetch, url, challenge);
  if (known !== undefined && found && !found.issuers.includes(known)) {
    const wanted = `${url.origin} now wants tokens of ${found.issuers.join(", ").slice(0, 200)}`;
    throw new OAuthError("OAUTH_REGISTRATION", `we are registered with ${known}, and ${wanted}`);
  }
  const issuer = known ?? found?.issuers[0] ?? url.origin;
  const server = await discoverServer(fetch, issuer);
  const resource = found?.resource ?? canonical(url);
  const { scopes, bound } = found ?? { scopes: undefined };
  if (server) return { resource, server, isDescribed: true, scopes, ...(bound === undefined ? {} : { bound }) };
  if (found || known !== undefined)
    throw new OAuthError("OAUTH_METADATA", `the authorization server ${issuer} publishes no metadata`);
  return { resource, server: guessed(url.origin), isDescribed: false, scopes: undefined };
}

async function findResource(fetch: Fetch, url: URL, challenge: BearerChallenge): Promise<Resource | undefined> {
  for (const place of places(url, challenge)) {
    const { status, body } = await fetchJson(fetch, place);
    if (status >= 500) throw new OAuthError("OAUTH_METADATA", `${place.href} answered HTTP ${status}`);
    if (status !== 200 || !body) continue;
    const { resource } = body;
    // Otherwise one server could have tokens made for another.
    if (typeof resource !== "string" || !covers(resource, url)) {
      throw new OAuthError(
        "OAUTH_METADATA",
        `${place.href} describes another resource than ${url.origin}${url.pathname}`,
      );
    }
    const issuers = texts(body.authorization_servers) ?? [];
    if (issuers.length === 0) throw new OAuthError("OAUTH_METADATA", `${place.href} names no authorization server`);
    return { resource, issuers, scopes: texts(body.scopes_supported), ...boundIn(body) };
  }
  if (challenge.resourceMetadata === undefined) return undefined;
  throw new OAuthError("OAUTH_METADATA", `there is no metadata where ${url.origin} says it is`);
}

function boundIn(body: JsonObject): { bound?: Bound } {
  if (body.dpop_bound_access_tokens_required === true) return { bound: "required" };
  const takesOurs = texts(body.dpop_signing_alg_values_supported)?.includes(DPOP_ALGORITHM);
  return takesOurs ? { bound: "accepted" } : {};
}

function places(url: URL, { resourceMetadata }: BearerChallenge): URL[] {
  if (resourceMetadata !== undefined) return [safeUrl(resourceMetadata, "`resource_metadata`")];
  const root = new URL("/.well-known/oauth-protected-resource", url.origin);
  const path = url.pathname.replace(/\/$/, "");
  return path === "" ? [root] : [new URL(root.pathname + path, url.origin), root];
}

/** The same address, or one that stands above it at the same origin. */
export function covers(resource: string, url: URL): boolean {
  if (!URL.canParse(resource)) return false;
  const named = new URL(resource);
  const path = named.pathname.replace(/\/$/, "");
  return named.origin === url.origin && named.hash === "" && `${url.pathname}/`.startsWith(`${path}/`);
}

function canonical(url: URL): string {
  return url.pathname === "/" ? url.origin : `${url.origin}${url.pathname}`;
}

/** 2025-03-26: without metadata, the endpoints stand at the server's own root. */
function guessed(origin: string): ServerMetadata {
  return {
    issuer: origin,
    authorizationEndpoint: new URL("/authorize", origin),
    tokenEndpoint: new URL("/token", origin),
    registrationEndpoint: new URL("/register", origin),
    namesIssuer: false,
    takesClientMetadataUrl: false,
  };
}
