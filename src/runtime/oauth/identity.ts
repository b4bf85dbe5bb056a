// Who the gateway is towards authorization servers, and the document that says so.

import { createPrivateKey } from "node:crypto";
import { type ClientIdentity, clientMetadata, OAuthError, safeUrl } from "../../auth/oauth-client/index.js";
import type { ServerAuth } from "../../storage/index.js";
import type { HttpRequest } from "../../mcp/transports/index.js";

const NAME = "Portcullis";
const DOCUMENT_PATH = "/oauth/client.json";
/** `app login` waits on this machine, on whichever port is free. */
const REDIRECTS = ["http://127.0.0.1/callback", "http://localhost/callback"];

function clientDocumentUrl(publicUrl: string): string {
  return new URL(DOCUMENT_PATH, publicUrl).href;
}

/** Serves the document; true when it answered. */
export function clientDocumentRoute(publicUrl: string): (request: HttpRequest) => boolean {
  const text = JSON.stringify({ client_id: clientDocumentUrl(publicUrl), ...clientMetadata(NAME, REDIRECTS) });
  return ({ method, path, reply }) => {
    if (path !== DOCUMENT_PATH || method !== "GET") return false;
    const headers = { "content-type": "application/json", "cache-control": "public, max-age=300" };
    reply.end(text, { status: 200, headers });
    return true;
  };
}

/** From a server's `auth`, with its references resolved. */
export async function clientIdentity(
  auth: ServerAuth,
  resolve: (text: string) => Promise<string>,
  publicUrl: string | undefined,
): Promise<ClientIdentity> {
  const text = (value: string | undefined) => (value === undefined ? undefined : resolve(value));
  const clientId = await text(auth.clientId);
  const issuer = await text(auth.issuer);
  const tokenEndpoint = await text(auth.tokenEndpoint);
  const privateKey = await text(auth.privateKey);
  // With a key there is no need for a secret that travels.
  const clientSecret = privateKey === undefined ? await text(auth.clientSecret) : undefined;
  return {
    name: NAME,
    ...(clientId === undefined ? {} : { clientId }),
    ...(clientSecret === undefined ? {} : { clientSecret }),
    ...(privateKey === undefined ? {} : { privateKey: signingKey(privateKey, auth.privateKeyId) }),
    ...(issuer === undefined ? {} : { issuer }),
    ...(tokenEndpoint === undefined ? {} : { tokenEndpoint: safeUrl(tokenEndpoint, "`tokenEndpoint`").href }),
    // A client id of this kind is an https address, or none.
    ...(publicUrl?.startsWith("https:") ? { metadataUrl: clientDocumentUrl(publicUrl) } : {}),
  };
}

const CURVES: Readonly<Record<string, string>> = { prime256v1: "ES256", secp384r1: "ES384", secp521r1: "ES512" };

/** PKCS #8 whatever form it came in, with the algorithm that its kind signs with. */
function signingKey(pem: string, keyId: string | undefined): NonNullable<ClientIdentity["privateKey"]> {
  const unusable = (): OAuthError =>
    new OAuthError("OAUTH_REGISTRATION", "`privateKey` is not a usable key: expected RSA, EC or Ed25519 in PEM");
  try {
    const key = createPrivateKey(pem);
    const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
    const algorithm =
      type === "rsa" ? "RS256" : type === "ed25519" ? "EdDSA" : CURVES[(type === "ec" && details?.namedCurve) || ""];
    if (algorithm === undefined) throw unusable();
    const text = key.export({ format: "pem", type: "pkcs8" }).toString();
    return { pem: text, algorithm, ...(keyId === undefined ? {} : { keyId }) };
  } catch {
    // What went wrong inside could quote the key.
    throw unusable();
  }
}
