// What a permit asks for in return, done to an answer before the caller sees it: parts taken out, a size kept.
// It covers every field of the answer, because what is to be hidden may stand anywhere in it.

import { type Obligation, redactionPattern } from "../gate/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../protocol/index.js";

const REDACTED = "[redacted]";

interface Redaction {
  readonly fields: ReadonlySet<string>;
  readonly patterns: readonly RegExp[];
}

export function keepObligations(obligations: readonly Obligation[], result: JsonObject): JsonObject {
  if (obligations.length === 0) return result;
  const redactions = obligations.filter((obligation) => obligation.kind === "redact");
  const redaction: Redaction = {
    fields: new Set(redactions.flatMap((obligation) => obligation.field ?? [])),
    patterns: redactions.flatMap((obligation) => redactionPattern(obligation) ?? []),
  };
  const redacted = redactions.length === 0 ? result : (redact(result, redaction) as JsonObject);
  const caps = obligations.flatMap((obligation) => (obligation.kind === "cap" ? obligation.maxBytes : []));
  return caps.length === 0 ? redacted : cap(redacted, Math.min(...caps));
}

function redact(value: JsonValue, how: Redaction): JsonValue {
  if (typeof value === "string") return redactString(value, how);
  if (Array.isArray(value)) return value.map((item) => redact(item, how));
  if (!isJsonObject(value)) return value;
  // By entries, so that a field named `__proto__` stays a field.
  return Object.fromEntries(
    Object.entries(value).map(([key, item]): [string, JsonValue] => [
      replace(key, how),
      how.fields.has(key) ? REDACTED : redact(item, how),
    ]),
  );
}

/** A text block often is the structured content once more, as JSON: a named field is hidden in there as well. */
function redactString(text: string, how: Redaction): string {
  if (how.fields.size === 0 || !/^\s*[[{]/.test(text)) return replace(text, how);
  try {
    return JSON.stringify(redact(JSON.parse(text) as JsonValue, how));
  } catch {
    return replace(text, how);
  }
}

function replace(text: string, how: Redaction): string {
  return how.patterns.reduce((out, pattern) => out.replace(pattern, REDACTED), text);
}

/** Blocks are kept while they fit, the first text that does not is cut, and the cut is told. */
function cap(result: JsonObject, maxBytes: number): JsonObject {
  if (sizeOf(result) <= maxBytes) return result;
  const content: JsonValue[] = [];
  let leftBytes = maxBytes;
  for (const block of Array.isArray(result.content) ? result.content : []) {
    const size = sizeOf(block);
    if (size <= leftBytes) {
      content.push(block);
      leftBytes -= size;
      continue;
    }
    if (isJsonObject(block) && typeof block.text === "string") {
      content.push({ type: "text", text: cutText(block.text, leftBytes) });
    }
    break;
  }
  return {
    ...(result.isError === undefined ? {} : { isError: result.isError }),
    content: [...content, { type: "text", text: `[cut to ${maxBytes} bytes by policy]` }],
    _meta: { "portcullis/truncated": true },
  };
}

function sizeOf(value: JsonValue): number {
  return Buffer.byteLength(JSON.stringify(value));
}

function cutText(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  let end = Math.min(maxBytes, bytes.length);
  // Cutting inside a character would make one that was never there.
  while (end > 0 && end < bytes.length && ((bytes[end] as number) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}
