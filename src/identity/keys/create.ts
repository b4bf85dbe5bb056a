import type { ApiKey, KeyLimits, Keys } from "../../storage/index.js";
import { PermissionInvalid, readPermissions } from "./permissions.js";
import { hashToken, newToken } from "./token.js";

export interface KeyRequest {
  readonly app: string;
  readonly name: string;
  /** The key's name unless given. */
  readonly agent?: string;
  readonly permissions: readonly string[];
  readonly limits?: KeyLimits;
  readonly expiresAt?: number;
}

/** The token is in the answer and nowhere else: whoever loses it makes another key. */
export async function createKey(keys: Keys, request: KeyRequest, by: string): Promise<{ key: ApiKey; token: string }> {
  if (request.permissions.length === 0) {
    throw new PermissionInvalid("a key without permissions can do nothing; name at least one");
  }
  const { approve } = readPermissions(request.permissions);
  const { text, prefix } = newToken(approve.length > 0 ? "approver" : "caller");
  const key = await keys.add(
    {
      id: prefix,
      app: request.app,
      agent: request.agent ?? request.name,
      name: request.name,
      hash: hashToken(text),
      prefix,
      permissions: [...request.permissions],
      limits: request.limits ?? {},
      ...(request.expiresAt === undefined ? {} : { expiresAt: request.expiresAt }),
    },
    by,
  );
  return { key, token: text };
}
