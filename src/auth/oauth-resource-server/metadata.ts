// Where a caller without a token learns where to get one: RFC 9728 metadata, and the header that points to it.

import type { HttpRequest } from "../../mcp/transports/index.js";
import { ALGORITHMS, type OAuthSettings } from "./settings.js";

const WELL_KNOWN = "/.well-known/oauth-protected-resource";

/** RFC 9728, 3.1: between the host and the path of the resource. */
export function metadataUrl(resource: string): string {
  const url = new URL(resource);
  return `${url.origin}${WELL_KNOWN}${url.pathname === "/" ? "" : url.pathname}`;
}

export function metadataText(settings: OAuthSettings, scopes: readonly string[]): string {
  return JSON.stringify({
    resource: settings.resource,
    authorization_servers: settings.issuers.map(({ issuer }) => issuer),
    scopes_supported: scopes,
    bearer_methods_supported: ["header"],
    dpop_signing_alg_values_supported: ALGORITHMS,
    ...(wantsProofs(settings) === "always" ? { dpop_bound_access_tokens_required: true } : {}),
    ...(settings.name === undefined ? {} : { resource_name: settings.name }),
    ...(settings.documentation === undefined ? {} : { resource_documentation: settings.documentation }),
  });
}

/** Answers the metadata's paths and no other. */
export function metadataRoute(settings: OAuthSettings, scopes: readonly string[]): (request: HttpRequest) => boolean {
  const text = metadataText(settings, scopes);
  const paths = new Set([WELL_KNOWN, new URL(metadataUrl(settings.resource)).pathname]);
  return ({ method, path, reply }) => {
    if (!paths.has(path)) return false;
    // Public by nature, and read by web clients.
    const headers = { "access-control-allow-origin": "*", "cache-control": "public, max-age=300" };
    if (method !== "GET" && method !== "HEAD") reply.end(undefined, { status: 405, headers: { allow: "GET, HEAD" } });
    else reply.end(text, { status: 200, headers: { ...headers, "content-type": "application/json" } });
    return true;
  };
}

/** Whether tokens have to be bound to a key: those of every issuer, of some, of none. */
export function wantsProofs({ issuers }: OAuthSettings): "always" | "sometimes" | "never" {
  const wanting = issuers.filter(({ dpop }) => dpop === "required").length;
  if (wanting === 0) return "never";
  return wanting === issuers.length ? "always" : "sometimes";
}

export type Scheme = "Bearer" | "DPoP";

export interface ChallengeDetail {
  readonly error?: string;
  readonly description?: string;
  readonly scope?: string;
}

export function challenge(scheme: Scheme, metadata: string, more: ChallengeDetail = {}): string {
  const parts = [`resource_metadata="${metadata}"`];
  if (more.error !== undefined) parts.push(`error="${more.error}"`);
  if (more.description !== undefined) parts.push(`error_description="${quotable(more.description)}"`);
  if (more.scope !== undefined && more.scope !== "") parts.push(`scope="${quotable(more.scope)}"`);
  if (scheme === "DPoP") parts.push(`algs="${ALGORITHMS.join(" ")}"`);
  return `${scheme} ${parts.join(", ")}`;
}

/** For who came with nothing that counts: what they may come with, the better way first. */
export function firstChallenge(settings: OAuthSettings, metadata: string, scope: string): string {
  const wants = wantsProofs(settings);
  const schemes: Scheme[] =
    wants === "always" ? ["DPoP"] : wants === "sometimes" ? ["DPoP", "Bearer"] : ["Bearer", "DPoP"];
  return schemes.map((scheme) => challenge(scheme, metadata, { scope })).join(", ");
}

/** What RFC 6750 allows between the quotes. */
function quotable(text: string): string {
  return text.replace(/[^\x20-\x21\x23-\x5b\x5d-\x7e]/g, "'");
}
