// Enterprise-managed authorization: an employer's identity provider, where the person is logged in already, vouches for
// them towards the issuer of one resource (RFC 8693, identity assertion authorization grant).

import { OAuthError } from "./errors.js";
import { type Fetch, fetchJson, safeUrl } from "./json-fetch.js";

export interface EnterpriseIdentity {
  /** The identity provider's token endpoint. */
  readonly tokenEndpoint: string;
  /** Our client there. */
  readonly clientId: string;
  readonly clientSecret?: string;
  /** The person's ID token. Asked for each time, because it ends. */
  readonly idToken: () => string | Promise<string>;
}

const TOKEN_TYPE = "urn:ietf:params:oauth:token-type";

export async function exchangeIdToken(
  fetch: Fetch,
  { tokenEndpoint, clientId, clientSecret, idToken }: EnterpriseIdentity,
  { issuer, resource }: { readonly issuer: string; readonly resource: string },
): Promise<string> {
  const url = safeUrl(tokenEndpoint, "the identity provider's token endpoint");
  const { status, body } = await fetchJson(fetch, url, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({
      grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
      requested_token_type: `${TOKEN_TYPE}:id-jag`,
      audience: issuer,
      resource,
      subject_token: await idToken(),
      subject_token_type: `${TOKEN_TYPE}:id_token`,
      client_id: clientId,
      ...(clientSecret === undefined ? {} : { client_secret: clientSecret }),
    }).toString(),
    redirect: "manual",
  });
  const { access_token: word, issued_token_type: type } = body ?? {};
  if (status === 200 && typeof word === "string" && type === `${TOKEN_TYPE}:id-jag`) return word;
  throw new OAuthError("OAUTH_TOKEN", `${url.origin} does not vouch for this person at ${issuer} (HTTP ${status})`);
}
