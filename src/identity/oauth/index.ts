export { type OAuthIdentity, oauthIdentity } from "./identify.js";
export { type OAuthSettings, readOAuthSettings } from "./settings.js";
