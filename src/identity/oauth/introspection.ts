// A signed token stays good until it expires. Where an operator wants a revocation to count sooner, the issuer is asked.

import { fetchJson, type Fetch, OAuthError } from "../../oauth/index.js";
import { Fault } from "../../protocol/index.js";
import { TokenRefused, type TrustedIssuer } from "./verify.js";

/** RFC 7662. Throws unless the issuer says that the token is active. */
export async function assertActive(token: string, { settings, keys }: TrustedIssuer, fetch: Fetch): Promise<void> {
  const { introspection } = settings;
  if (!introspection) return;
  const { clientId, clientSecret } = introspection;
  const secret = Buffer.from(`${formEncoded(clientId)}:${formEncoded(clientSecret)}`).toString("base64");
  try {
    const { introspectionEndpoint } = await keys.metadata();
    if (!introspectionEndpoint) throw new OAuthError("OAUTH_METADATA", `${settings.issuer} has no introspection`);
    const { status, body } = await fetchJson(fetch, introspectionEndpoint, {
      method: "POST",
      headers: { authorization: `Basic ${secret}`, "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ token, token_type_hint: "access_token" }).toString(),
    });
    if (status === 200 && body?.active === false) throw new TokenRefused("the token was revoked");
    if (status !== 200 || body?.active !== true) {
      throw new OAuthError("OAUTH_METADATA", `${settings.issuer} answered introspection with HTTP ${status}`);
    }
  } catch (error) {
    if (error instanceof TokenRefused) throw error;
    throw new Fault("Unavailable", "tokens cannot be checked at the moment: their issuer does not answer", {
      cause: error,
    });
  }
}

/** RFC 6749, 2.3.1: both halves are form-encoded before they are joined. */
function formEncoded(text: string): string {
  return new URLSearchParams({ "": text }).toString().slice(1);
}
