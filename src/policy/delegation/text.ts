import { TOKEN_LIMITS } from "./block.js";
import { DelegationRefused } from "./refused.js";

/** The parts between the prefix and the `~`, and what stands after it. */
export function partsOf(token: string, prefix: string): { body: string[]; end: string } {
  const at = token.lastIndexOf("~");
  if (token.length > TOKEN_LIMITS.maxTokenChars || !token.startsWith(prefix) || at === -1) throw malformed();
  const body = token.slice(prefix.length, at).split(".");
  if (body.length > 2 * TOKEN_LIMITS.maxBlocks) throw malformed();
  return { body, end: token.slice(at + 1) };
}

/** Base64url in the one form that there is for these bytes, so that a token has one text. */
export function bytesOf(part: string): Buffer {
  const bytes = Buffer.from(part, "base64url");
  if (bytes.toString("base64url") !== part) throw malformed();
  return bytes;
}

function malformed(): DelegationRefused {
  return new DelegationRefused("malformed", "the delegation token is malformed, or longer than is accepted");
}
