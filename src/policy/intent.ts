// An intent is everything of the caller's that will travel, in one canonical text with one content id.
// What was decided, approved, recorded and sent carries that id; what is sent is cut from that text.

import type { JsonObject, JsonValue } from "../mcp/index.js";
import { canonicalize } from "./canonical.js";
import { contentId } from "./content-id.js";
import type { Principal, CallTarget } from "./types.js";

export interface Intent {
  /** Content id of `text`. */
  readonly id: string;
  readonly text: string;
  /** Canonical text of the arguments alone, and its content id: what the audit line carries. */
  readonly argumentsText: string;
  readonly argumentsId: string;
  /** Canonical text of the other forwarded parameters (`_meta`, `inputResponses`, unknown fields); "{}" when none. */
  readonly forwardedText: string;
}

export interface IntentParts {
  principal: Principal;
  method: string;
  target: CallTarget;
  arguments: JsonObject;
  /** Everything else in `params` that travels downstream. */
  forwarded: JsonObject;
}

const EMPTY: JsonObject = {};

export function makeIntent(parts: IntentParts): Intent {
  const argumentsText = canonicalize(parts.arguments);
  const forwardedText = parts.forwarded === EMPTY ? "{}" : canonicalize(parts.forwarded);
  const { principal, target } = parts;
  const holder = principal.holder === undefined ? "" : `,"holder":${quoted(principal.holder)}`;
  // Keys in canonical order, so that splicing the parts gives the canonical text of the whole.
  const text =
    `{"agent":${quoted(principal.agent)},"app":${quoted(principal.app)},"arguments":${argumentsText}` +
    `,"binding":${quoted(target.binding)},"definition":${quoted(target.definitionHash)},"forwarded":${forwardedText}` +
    `${holder},"method":${quoted(parts.method)},"name":${quoted(target.name)},"v":1}`;
  return { id: contentId(text), text, argumentsText, argumentsId: contentId(argumentsText), forwardedText };
}

/** Names repeat call after call; their canonical form is remembered, within a bound. */
const MAX_QUOTED = 4096;
const quotes = new Map<string, string>();

function quoted(name: string): string {
  let text = quotes.get(name);
  if (text === undefined) {
    text = canonicalize(name);
    if (quotes.size >= MAX_QUOTED) quotes.clear();
    if (name.length <= 256) quotes.set(name, text);
  }
  return text;
}

/** The arguments that run: parsed anew from what was hashed, so nothing that touched the first copy matters. */
export function intentArguments(intent: Intent): JsonObject {
  return JSON.parse(intent.argumentsText) as JsonObject;
}

export function intentForwarded(intent: Intent): Record<string, JsonValue> {
  return intent.forwardedText === "{}" ? {} : (JSON.parse(intent.forwardedText) as Record<string, JsonValue>);
}

export const NOTHING_FORWARDED: JsonObject = EMPTY;
