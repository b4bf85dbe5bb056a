import { createHash, hash, randomBytes } from "node:crypto";
import { guardrailAgent, serverAgent } from "../../policy/index.js";
import type { ApiKey, KeyLimits, Keys } from "../../storage/index.js";
import { PermissionInvalid, readPermissions } from "./permissions.js";

export interface KeyRequest {
  readonly app: string;
  readonly name: string;
  /** The key's name unless given. */
  readonly agent?: string;
  readonly permissions: readonly string[];
  readonly limits?: KeyLimits;
  readonly expiresAt?: number;
}

/** The token is only in the result; a lost token is replaced by creating another key. */
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

// What an API key looks like: `pk_<prefix>_<random><checksum>`. The prefix is how people recognise it and may be shown;
// the checksum tells a mistyped key, or a text that is none, without asking anyone. An approver's begins with `pa`.

export type KeyKind = "caller" | "approver";

const KINDS: Readonly<Record<KeyKind, string>> = { caller: "pk", approver: "pa" };
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX_LENGTH = 10;
/** 62^43 > 2^256 */
const RANDOM_LENGTH = 43;
const CHECKSUM_LENGTH = 6;
const TOKEN = /^p[ka]_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}$/;

export interface ApiKeyToken {
  readonly text: string;
  /** Also the key's id. */
  readonly prefix: string;
}

export function newToken(kind: KeyKind): ApiKeyToken {
  const prefix = `${KINDS[kind]}_${randomText(PREFIX_LENGTH)}`;
  const body = `${prefix}_${randomText(RANDOM_LENGTH)}`;
  return { text: body + checksum(body), prefix };
}

/** False for everything that was never a key. */
export function looksLikeToken(text: string): boolean {
  return TOKEN.test(text) && checksum(text.slice(0, -CHECKSUM_LENGTH)) === text.slice(-CHECKSUM_LENGTH);
}

/** Keys are random and long: one round of a plain hash is enough, and quick. */
export function hashToken(text: string): string {
  return hash("sha256", text, "hex");
}

function checksum(body: string): string {
  const digest = createHash("sha256").update("portcullis key checksum\0").update(body).digest();
  return Array.from(digest.subarray(0, CHECKSUM_LENGTH), (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/** Each character is equally likely. */
function randomText(count: number): string {
  let text = "";
  while (text.length < count) {
    for (const byte of randomBytes(count * 2)) {
      // 248 is the largest multiple of 62 in a byte; the rest would favour the first characters.
      if (byte < 248 && text.length < count) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
