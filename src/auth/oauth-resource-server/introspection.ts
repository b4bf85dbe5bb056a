// A signed token stays good until it expires. Where an operator wants a revocation to count sooner, the issuer is asked.

import { checkOrigin, fetchJson, type Fetch, OAuthError, safeUrl } from "../oauth-client/index.js";
import { Fault } from "../../mcp/index.js";
import { TokenRefused, type TrustedIssuer } from "./verify.js";

/** RFC 7662. Throws unless the issuer says that the token is active. */
export async function assertActive(token: string, { settings, keys }: TrustedIssuer, fetch: Fetch): Promise<void> {
  const { introspection } = settings;
  if (!introspection) return;
  const { clientId, clientSecret } = introspection;
  const secret = Buffer.from(`${formEncoded(clientId)}:${formEncoded(clientSecret)}`).toString("base64");
  try {
    const { status, body } = await fetchJson(fetch, await endpointOf({ settings, keys }), {
      method: "POST",
      headers: { authorization: `Basic ${secret}`, "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ token, token_type_hint: "access_token" }).toString(),
      redirect: "manual",
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

/** Receives our client's secret and the caller's token: what the operator configured, or an address of the issuer's own origin. */
async function endpointOf({ settings, keys }: Pick<TrustedIssuer, "settings" | "keys">): Promise<URL> {
  const configured = settings.introspection?.endpoint;
  if (configured !== undefined) return safeUrl(configured, "`introspection.endpoint`");
  const { introspectionEndpoint } = await keys.metadata();
  if (!introspectionEndpoint) throw new OAuthError("OAUTH_METADATA", `${settings.issuer} has no introspection`);
  checkOrigin(introspectionEndpoint, settings.issuer, "introspection.endpoint");
  return introspectionEndpoint;
}

/** RFC 6749, 2.3.1: both halves are form-encoded before they are joined. */
function formEncoded(text: string): string {
  return new URLSearchParams({ "": text }).toString().slice(1);
}
