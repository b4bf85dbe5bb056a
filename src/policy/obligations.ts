// Obligations that policy attached to a permit. They cover every byte on the way back: content, structured content,
// errors and `_meta` alike.

import { Fault, type JsonObject, type JsonValue, parseStrict } from "../mcp/index.js";
import { redactionPattern } from "./cedar/annotations.js";
import type { Obligation } from "./cedar/types.js";

const REDACTED = "[redacted]";
/** The protocol's types of content blocks: they hold nothing of a tool's, and a block without one is not valid. */
const BLOCK_TYPES: ReadonlySet<JsonValue> = new Set(["text", "image", "audio", "resource", "resource_link"]);

interface Compiled {
  readonly fields: ReadonlySet<string>;
  readonly patterns: readonly RegExp[];
  readonly maxBytes: number | undefined;
}

/** There are as many different lists as there are combinations of permits; each is compiled once. */
const MAX_COMPILED = 1_000;
const compiled = new Map<string, Compiled>();

function compile(obligations: readonly Obligation[]): Compiled {
  const key = JSON.stringify(obligations);
  const known = compiled.get(key);
  if (known) return known;
  const fields = new Set<string>();
  const patterns: RegExp[] = [];
  let maxBytes: number | undefined;
  for (const obligation of obligations) {
    if (obligation.kind === "cap") maxBytes = Math.min(maxBytes ?? obligation.maxBytes, obligation.maxBytes);
    else if (obligation.field !== undefined) fields.add(obligation.field);
    else patterns.push(patternOf(obligation));
  }
  const entry = { fields, patterns, maxBytes };
  if (compiled.size >= MAX_COMPILED) compiled.clear();
  compiled.set(key, entry);
  return entry;
}

function patternOf(obligation: Obligation): RegExp {
  const pattern = redactionPattern(obligation);
  // Policies are checked at load; should one slip through, the answer is withheld rather than shown bare.
  if (!pattern) throw new Fault("PolicyDeny", "the policy asks for an unknown redaction");
  return pattern;
}

export function mustBuffer(obligations: readonly Obligation[]): boolean {
  return obligations.length > 0;
}

export function applyObligations(obligations: readonly Obligation[], result: JsonObject): JsonObject {
  if (obligations.length === 0) return result;
  const rules = compile(obligations);
  const redacted = redacts(rules) ? redactResult(result, rules) : result;
  return rules.maxBytes === undefined ? redacted : cap(redacted, rules.maxBytes);
}

/** The same for a value beside the result, such as the data of a log line: it keeps its shape while it fits. */
export function applyToValue(obligations: readonly Obligation[], value: JsonValue): JsonValue {
  if (obligations.length === 0) return value;
  const rules = compile(obligations);
  const redacted = redacts(rules) ? redact(value, rules) : value;
  if (rules.maxBytes === undefined) return redacted;
  const text = JSON.stringify(redacted);
  return Buffer.byteLength(text) <= rules.maxBytes ? redacted : cutText(text, rules.maxBytes);
}

/** The same for a message of an error or a log line. */
export function applyToText(obligations: readonly Obligation[], text: string): string {
  if (obligations.length === 0) return text;
  const { patterns, maxBytes } = compile(obligations);
  const redacted = redactText(text, patterns);
  return maxBytes === undefined ? redacted : cutText(redacted, maxBytes);
}

/** And for a failure: a tool's error message can carry what its result could. */
export function applyToFault(obligations: readonly Obligation[], fault: Fault): Fault {
  if (obligations.length === 0) return fault;
  const { rule, field, suggestions, extra, downstream } = fault.detail;
  const shown = applyObligations(obligations, {
    suggestions: [...(suggestions ?? [])],
    extra: (extra ?? {}) as JsonObject,
    ...(downstream?.data === undefined ? {} : { data: downstream.data as JsonValue }),
  });
  return new Fault(fault.type, applyToText(obligations, fault.message), {
    rule,
    field,
    suggestions: (shown.suggestions ?? []) as string[],
    extra: (shown.extra ?? {}) as JsonObject,
    ...(downstream ? { downstream: { code: downstream.code, message: "", data: shown.data } } : {}),
  });
}

function redacts({ fields, patterns }: Compiled): boolean {
  return fields.size > 0 || patterns.length > 0;
}

/** What the protocol itself says about the result stays readable, however broad a pattern is. */
function redactResult(result: JsonObject, rules: Compiled): JsonObject {
  const shown = redact(result, rules) as JsonObject;
  if (typeof result.isError === "boolean") shown.isError = result.isError;
  if (!Array.isArray(result.content) || !Array.isArray(shown.content)) return shown;
  const { content } = result;
  shown.content = shown.content.map((block, at) => {
    const type = (content[at] as JsonObject | null)?.type;
    return type !== undefined && BLOCK_TYPES.has(type) ? { ...(block as JsonObject), type } : block;
  });
  return shown;
}

function redact(value: JsonValue, rules: Compiled): JsonValue {
  if (typeof value === "string") return redactString(value, rules);
  // A number or a boolean is sent as its JSON text, so that is what a pattern is held against.
  if (typeof value !== "object" || value === null) return matches(String(value), rules) ? REDACTED : value;
  if (Array.isArray(value)) return value.map((item) => redact(item, rules));
  // By entries, so that a field named `__proto__` stays a field.
  return Object.fromEntries(Object.entries(value).map((member) => redactMember(member, rules)));
}

function redactMember([key, item]: [string, JsonValue], rules: Compiled): [string, JsonValue] {
  const name = redactText(key, rules.patterns);
  if (rules.fields.has(key)) return [name, REDACTED];
  const shown = redact(item, rules);
  // `"password":"…"` is a match only with its name beside it, as it would be in a text.
  const alone = typeof shown === "object" && shown !== null;
  return [name, !alone && stillMatches(`${JSON.stringify(name)}:${JSON.stringify(shown)}`, rules) ? REDACTED : shown];
}

/** A text block often is JSON in disguise: it is redacted as what it is, and stays JSON. */
function redactString(text: string, rules: Compiled): string {
  if (!/^\s*[[{]/.test(text) || (rules.fields.size === 0 && !matches(text, rules)))
    return redactText(text, rules.patterns);
  let out = text;
  try {
    const value = parseLeniently(text, rules);
    const shown = JSON.stringify(redact(value, rules));
    if (shown !== JSON.stringify(value)) out = shown;
  } catch {
    // Not JSON after all: the patterns below still apply.
  }
  return out !== text && !stillMatches(out, rules) ? out : redactText(out, rules.patterns);
}

/** Text that two readers could read in two ways is only looked into for named fields; its digits must not be rounded. */
function parseLeniently(text: string, rules: Compiled): JsonValue {
  try {
    return parseStrict(text);
  } catch (error) {
    if (rules.fields.size === 0) throw error;
    return JSON.parse(redactText(text, rules.patterns)) as JsonValue;
  }
}

function matches(text: string, { patterns }: Compiled): boolean {
  return patterns.some((pattern) => text.search(pattern) !== -1);
}

/** The marker itself does not match, even for a pattern that takes any word. */
function stillMatches(text: string, rules: Compiled): boolean {
  return rules.patterns.length > 0 && matches(text.replaceAll(REDACTED, "\u0000"), rules);
}

function redactText(text: string, patterns: readonly RegExp[]): string {
  let out = text;
  for (const pattern of patterns) out = out.replace(pattern, REDACTED);
  return out;
}

/** Cuts a result to `maxBytes`: structured content is kept whole or left out, texts are cut, and `_meta` reports the cut. */
function cap(result: JsonObject, maxBytes: number): JsonObject {
  if (Buffer.byteLength(JSON.stringify(result)) <= maxBytes) return result;
  let left = maxBytes;
  const content: JsonValue[] = [];
  for (const block of Array.isArray(result.content) ? result.content : []) {
    const size = Buffer.byteLength(JSON.stringify(block));
    if (size <= left) {
      content.push(block);
      left -= size;
      continue;
    }
    if (isTextBlock(block) && left > 0) content.push({ ...block, text: cutText(block.text, left) });
    break;
  }
  return {
    content: [...content, { type: "text", text: `[cut to ${maxBytes} bytes by policy]` }],
    ...(result.isError === undefined ? {} : { isError: result.isError }),
    _meta: { "portcullis/truncated": true },
  };
}

function isTextBlock(block: JsonValue): block is { type: "text"; text: string } {
  return typeof block === "object" && block !== null && !Array.isArray(block) && typeof block.text === "string";
}

export function cutText(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  // Cutting inside a character would make one that was never there.
  let end = Math.max(0, Math.floor(maxBytes));
  while (end > 0 && ((bytes[end] as number) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}
