// OAuth for `connect`: the server says where its tokens are to be had, the caller shows a person where to log in.

import type { GrantStore } from "../oauth/index.js";
import type { HttpCredentials } from "../transport/index.js";
import { errorOf } from "./errors.js";

export interface OAuthOptions {
  /** A client registered beforehand; without one the server is asked to take `clientMetadataUrl`, or to register us. */
  clientId?: string;
  clientSecret?: string;
  /** Proves who we are instead of a secret. PKCS #8 in PEM, with the algorithm to sign with. */
  privateKey?: { pem: string; algorithm: string };
  /** The issuer that the client is registered with; it is used at no other. */
  issuer?: string;
  /** Where a document describes this client (its client id, at servers that read such documents). */
  clientMetadataUrl?: string;
  /** Shown to people who log in. */
  clientName?: string;
  /** `client_credentials` needs nobody; `code`, the default, needs `authorize` and `redirectUri`. */
  grant?: "code" | "client_credentials";
  redirectUri?: string;
  /** Shows a person this address; resolves to the address, with its query, that the answer came back to. */
  authorize?: (url: URL) => Promise<string | URL>;
  scopes?: readonly string[];
  /** Where tokens are kept; in memory unless given. What is kept is secret. */
  store?: GrantStore;
}

/** Loaded on first use: most connections need none of it. */
export async function oauthCredentials(url: URL, options: OAuthOptions): Promise<HttpCredentials> {
  const { memoryGrants, OAuthClient } = await import("../oauth/index.js");
  const { clientMetadataUrl, clientName, redirectUri, authorize, scopes, store, grant, ...identity } = options;
  const client = new OAuthClient({
    url,
    // Secrets and codes go to the address they are for and to no other.
    fetch: (to, init) => fetch(to, { redirect: "error", ...init }),
    identity: {
      ...identity,
      ...(clientMetadataUrl === undefined ? {} : { metadataUrl: clientMetadataUrl }),
      ...(clientName === undefined ? {} : { name: clientName }),
    },
    store: store ?? memoryGrants(),
    scopes,
    grant: grant ?? "code",
    ...(redirectUri === undefined ? {} : { redirectUri }),
    ...(authorize === undefined ? {} : { authorize }),
  });
  return {
    headers: () => client.headers(),
    refused: (refusal) =>
      client.refused(refusal).catch((error: Error) => {
        const why = `no access token for ${url.origin}: ${error.message}`;
        throw errorOf("AuthenticationError", why, { status: refusal.status, cause: error });
      }),
  };
}
