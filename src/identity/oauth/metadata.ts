// Where a caller without a token learns where to get one: RFC 9728 metadata, and the header that points to it.

import type { HttpRequest } from "../../transport/index.js";
import type { OAuthSettings } from "./settings.js";

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
    ...(settings.name === undefined ? {} : { resource_name: settings.name }),
    ...(settings.documentation === undefined ? {} : { resource_documentation: settings.documentation }),
  });
}

/** Answers the metadata's paths and no other. */
export function metadataDoor(settings: OAuthSettings, scopes: readonly string[]): (request: HttpRequest) => boolean {
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

export function bearerChallenge(
  metadata: string,
  more: { readonly error?: string; readonly description?: string; readonly scope?: string } = {},
): string {
  const parts = [`resource_metadata="${metadata}"`];
  if (more.error !== undefined) parts.push(`error="${more.error}"`);
  if (more.description !== undefined) parts.push(`error_description="${quotable(more.description)}"`);
  if (more.scope !== undefined && more.scope !== "") parts.push(`scope="${quotable(more.scope)}"`);
  return `Bearer ${parts.join(", ")}`;
}

/** What RFC 6750 allows between the quotes. */
function quotable(text: string): string {
  return text.replace(/[^\x20-\x21\x23-\x5b\x5d-\x7e]/g, "'");
}
