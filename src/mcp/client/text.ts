// Messages as texts: written so that canonical arguments travel unchanged, read so that nothing is lost.

import { endOfString, type JsonObject, type JsonValue } from "../index.js";

/** `argumentsText` goes in as it is: what was hashed and decided is what the server reads. */
export function encodeRequest(id: number, method: string, params: JsonObject, argumentsText?: string): string {
  if (argumentsText === undefined) return JSON.stringify({ jsonrpc: "2.0", id, method, params });
  const rest = JSON.stringify(params);
  const tail = rest === "{}" ? "}" : `,${rest.slice(1)}`;
  return `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":{"arguments":${argumentsText}${tail}}`;
}

/**
 * Reads what a server sent. Nobody else reads these bytes, so integers beyond 2^53 and repeated keys are no danger
 * to a decision and do not cost the caller an answer that may already have had its effect. Depth is bounded.
 */
export function parseMessage(text: string, maxDepth: number): JsonValue {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) i = endOfString(text, i);
    else if (c === 0x7d || c === 0x5d) depth--;
    else if ((c === 0x7b || c === 0x5b) && ++depth > maxDepth) {
      throw new SyntaxError(`nesting is deeper than ${maxDepth} levels`);
    }
  }
  return JSON.parse(text) as JsonValue;
}
