import { guardrailAgent, serverAgent } from "../../policy/index.js";
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
  const agent = request.agent ?? request.name;
  checkKeyAgent(agent);
  const { approve } = readPermissions(request.permissions);
  const { text, prefix } = newToken(approve.length > 0 ? "approver" : "caller");
  const key = await keys.add(
    {
      id: prefix,
      app: request.app,
      agent,
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

/** The names of OAuth callers hold one of these (`agentName`), so no key is ever the same agent as one of them. */
const OAUTH_NAME = /[!|]/;
/** Servers and guardrails have agent names of their own, with limits and approval requests of their own. */
const RESERVED_PREFIXES = [serverAgent(""), guardrailAgent("")];

export function checkKeyAgent(agent: string): void {
  const prefix = RESERVED_PREFIXES.find((reserved) => agent.startsWith(reserved));
  if (prefix !== undefined) {
    throw new PermissionInvalid(
      `invalid agent \`${agent}\`: ${prefix} is reserved for servers and guardrails; choose another with --agent`,
    );
  }
  if (!OAUTH_NAME.test(agent)) return;
  throw new PermissionInvalid(
    `invalid agent \`${agent}\`: ! and | are reserved for callers with OAuth tokens; choose another with --agent`,
  );
}
