import type { OAuthIdentity, OAuthIdentityOptions } from "./identify.js";

export { type OAuthSettings, readOAuthSettings } from "./settings.js";

/** Loaded on first use: most servers know their callers by other means. */
export async function openOAuthIdentity(options: OAuthIdentityOptions): Promise<OAuthIdentity> {
  const { oauthIdentity } = await import("./identify.js");
  return oauthIdentity(options);
}
