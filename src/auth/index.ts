// Who is calling. A local caller is the operating system's user; what a client says about itself counts for nothing.

import type { JsonValue } from "../mcp/index.js";
import type { Peer } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";
import type { OAuthIdentity, OAuthIdentityOptions } from "./oauth-resource-server/identify.js";

export { ApiKeyCache, type ApiKeyCacheOptions, type Credential } from "./api-keys/cache.js";
export { createKey, type KeyRequest } from "./api-keys/create.js";
export { keyIdentity, noCredential, unknownCaller } from "./api-keys/identify.js";
export {
  approverOf,
  consoleRolesOf,
  type KeyRights,
  PERMISSION_FORMS,
  PermissionInvalid,
  readPermissions,
} from "./api-keys/permissions.js";
export { DELEGATION_HEADER, DELEGATION_META, delegatedIdentity } from "./delegated.js";
export { LOCAL_CREDENTIAL, type LocalOptions, localIdentity, remoteReason } from "./local.js";
export { type OAuthSettings, readOAuthSettings } from "./oauth-resource-server/settings.js";

/**
 * Answers with a principal, or throws a Fault of type AuthenticationError. `auth` is the request's own field, `meta` the
 * `_meta` of its parameters.
 */
export type Identify = (peer: Peer, auth?: JsonValue, meta?: JsonValue) => Principal | Promise<Principal>;

/** Loaded on first use: most servers identify their callers by other means. */
export async function openOAuthIdentity(options: OAuthIdentityOptions): Promise<OAuthIdentity> {
  const { oauthIdentity } = await import("./oauth-resource-server/identify.js");
  return oauthIdentity(options);
}
