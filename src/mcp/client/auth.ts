// OAuth for `connect`: the server says where its tokens are to be had, the caller shows a person where to log in.

import type { EnterpriseIdentity, Fetch, GrantStore } from "../../auth/oauth-client/index.js";
import type { HttpCredentials } from "../transports/index.js";
import { errorOf } from "./errors.js";

interface Vouched {
  readonly issuer: string;
  readonly resource: string;
}

export interface OAuthOptions {
  /** A client registered beforehand, with its `issuer`; without one the server is asked to take `clientMetadataUrl`, or to register us. */
  clientId?: string;
  clientSecret?: string;
  /** Proves who we are instead of a secret. PKCS #8 in PEM, with the algorithm to sign with. */
  privateKey?: { pem: string; algorithm: string };
  /** The issuer that the client is registered with: required beside `clientId`, whose credentials are sent to no other. */
  issuer?: string;
  /** The issuer's token endpoint, where that is at another origin than the issuer itself. */
  tokenEndpoint?: string;
  /** Where a document describes this client (its client id, at servers that read such documents). */
  clientMetadataUrl?: string;
  /** Shown to people who log in. */
  clientName?: string;
  /** `client_credentials` and `assertion` need nobody; `code`, the default, needs `authorize` and `redirectUri`. */
  grant?: "code" | "client_credentials" | "assertion";
  /**
   * For `assertion`: a signed word about who we are, of somebody whom the issuer trusts, such as a workload's identity.
   * For people whom their employer's identity provider vouches for, `enterprise` gets it.
   */
  assertion?: (to: Vouched) => Promise<string>;
  enterprise?: EnterpriseIdentity;
  redirectUri?: string;
  /** Shows a person this address; resolves to the address, with its query, that the answer came back to. */
  authorize?: (url: URL) => Promise<string | URL>;
  scopes?: readonly string[];
  /** Where tokens are kept; in memory unless given. What is kept is secret. */
  store?: GrantStore;
}

/** Loaded on first use: most connections need none of it. */
export async function oauthCredentials(url: URL, options: OAuthOptions): Promise<HttpCredentials> {
  const { exchangeIdToken, memoryGrants, OAuthClient } = await import("../../auth/oauth-client/index.js");
  const { clientMetadataUrl, clientName, redirectUri, authorize, enterprise, scopes, store, grant, ...rest } = options;
  // Secrets and codes go to the address they are for and to no other.
  const straight: Fetch = (to, init) => fetch(to, { redirect: "error", ...init });
  const vouched = enterprise && ((to: Vouched) => exchangeIdToken(straight, enterprise, to));
  const { assertion = vouched, ...identity } = rest;
  const client = new OAuthClient({
    url,
    fetch: straight,
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
    ...(assertion === undefined ? {} : { assertion }),
    dpop: true,
  });
  return {
    headers: (method) => client.headers(method),
    refused: (refusal) =>
      client.refused(refusal).catch((error: Error) => {
        const why = `no access token for ${url.origin}: ${error.message}`;
        throw errorOf("AuthenticationError", why, { status: refusal.status, cause: error });
      }),
  };
}
