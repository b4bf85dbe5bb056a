// An intent is everything of the caller's that will travel, in one canonical text (RFC 8785) with one content id (CIDv1).
// What was decided, approved, recorded and sent carries that id; what is sent is cut from that text.

import { createHash, hash } from "node:crypto";
import { type JsonObject, type JsonValue, StrictJsonError } from "../mcp/index.js";
import type { CallTarget, Principal } from "./types.js";

/** version 1, codec 0x0200 as a varint, sha2-256, 32 bytes. */
const PREFIX = Buffer.from([0x01, 0x80, 0x04, 0x12, 0x20]);
const BYTES = PREFIX.length + 32;

// The one-shot hash saves an object a call; it came with Node 20.12. Latin-1 carries the bytes without a Buffer.
const sha256: (text: string) => string =
  typeof hash === "function"
    ? (text) => hash("sha256", text, "binary")
    : (text) => createHash("sha256").update(text).digest("binary");

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const CODES = Uint8Array.from(ALPHABET, (character) => character.charCodeAt(0));

/** 37 bytes are 296 bits, so 60 characters after the `b`; the last group is filled with zeros that are not written. */
const LENGTH = 1 + Math.ceil((BYTES * 8) / 5);

/** The prefix is five bytes, which is exactly eight characters: they stand in the buffer once and for all. */
const HEAD = 1 + (PREFIX.length * 8) / 5;
const scratch = Buffer.alloc(HEAD + 56);
scratch.write("b", 0, "latin1");
encode(PREFIX.toString("latin1"), 1);

/** Base32 of `bytes` (a multiple of five, one character a byte) into the buffer. */
function encode(bytes: string, start: number): void {
  let to = start;
  for (let i = 0; i < bytes.length; i += 5) {
    const a = bytes.charCodeAt(i);
    const b = bytes.charCodeAt(i + 1);
    const c = bytes.charCodeAt(i + 2);
    const d = bytes.charCodeAt(i + 3);
    const e = bytes.charCodeAt(i + 4);
    scratch[to++] = CODES[a >> 3] as number;
    scratch[to++] = CODES[((a & 7) << 2) | (b >> 6)] as number;
    scratch[to++] = CODES[(b >> 1) & 31] as number;
    scratch[to++] = CODES[((b & 1) << 4) | (c >> 4)] as number;
    scratch[to++] = CODES[((c & 15) << 1) | (d >> 7)] as number;
    scratch[to++] = CODES[(d >> 2) & 31] as number;
    scratch[to++] = CODES[((d & 3) << 3) | (e >> 5)] as number;
    scratch[to++] = CODES[e & 31] as number;
  }
}

export function contentId(canonicalText: string): string {
  encode(`${sha256(canonicalText)}\0\0\0`, HEAD);
  return scratch.toString("latin1", 0, LENGTH);
}

/** Deeper than any message the codec lets in; here it guards values built in memory. */
const MAX_DEPTH = 512;

/** A string that needs no escaping and no surrogate check: most keys and most values. */
const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

export function canonicalize(value: JsonValue): string {
  return write(value, 0);
}

function write(value: JsonValue | undefined, depth: number): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "number":
      if (!Number.isFinite(value)) throw new StrictJsonError(`${value} has no JSON form`);
      return value === 0 ? "0" : String(value);
    case "boolean":
      return value ? "true" : "false";
    case "object":
      if (value === null) return "null";
      if (depth >= MAX_DEPTH) throw new StrictJsonError(`nesting is deeper than ${MAX_DEPTH} levels`);
      return Array.isArray(value) ? writeArray(value, depth) : writeObject(value, depth);
    default:
      throw new StrictJsonError(`a value of type ${typeof value} has no JSON form`);
  }
}

function writeArray(items: JsonValue[], depth: number): string {
  let out = "[";
  for (let i = 0; i < items.length; i++) out += (i === 0 ? "" : ",") + write(items[i], depth + 1);
  return `${out}]`;
}

function writeObject(object: { [key: string]: JsonValue }, depth: number): string {
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== Object.prototype && prototype !== null) {
    throw new StrictJsonError(`an instance of ${prototype?.constructor?.name ?? "a class"} has no JSON form`);
  }
  // Default string order compares UTF-16 code units, which is what the RFC asks for.
  const keys = Object.keys(object).sort();
  let out = "{";
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    out += `${i === 0 ? "" : ","}${quote(key)}:${write(object[key], depth + 1)}`;
  }
  return `${out}}`;
}

function quote(text: string): string {
  if (text.length < 64 && PLAIN.test(text)) return `"${text}"`;
  if (!text.isWellFormed()) throw new StrictJsonError("a string contains a lone surrogate, which has no UTF-8 form");
  return JSON.stringify(text);
}

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

interface IntentParts {
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
