// Who the gateway is towards authorization servers, and the document that says so.

import { type ClientIdentity, clientMetadata } from "../../oauth/index.js";
import type { ServerAuth } from "../../storage/index.js";
import type { HttpRequest } from "../../transport/index.js";

const NAME = "Portcullis";
const DOCUMENT_PATH = "/oauth/client.json";
/** `app login` waits on this machine, on whichever port is free. */
const REDIRECTS = ["http://127.0.0.1/callback", "http://localhost/callback"];

function clientDocumentUrl(publicUrl: string): string {
  return new URL(DOCUMENT_PATH, publicUrl).href;
}

/** Serves the document; true when it answered. */
export function clientDocumentDoor(publicUrl: string): (request: HttpRequest) => boolean {
  const text = JSON.stringify({ client_id: clientDocumentUrl(publicUrl), ...clientMetadata(NAME, REDIRECTS) });
  return ({ method, path, reply }) => {
    if (path !== DOCUMENT_PATH || method !== "GET") return false;
    const headers = { "content-type": "application/json", "cache-control": "public, max-age=300" };
    reply.end(text, { status: 200, headers });
    return true;
  };
}

export function clientIdentity(
  { clientId, clientSecret }: Pick<ServerAuth, "clientId" | "clientSecret">,
  publicUrl: string | undefined,
): ClientIdentity {
  return {
    name: NAME,
    ...(clientId === undefined ? {} : { clientId }),
    ...(clientSecret === undefined ? {} : { clientSecret }),
    // A client id of this kind is an https address, or none.
    ...(publicUrl?.startsWith("https:") ? { metadataUrl: clientDocumentUrl(publicUrl) } : {}),
  };
}
