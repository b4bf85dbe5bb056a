// W3C trace context: read strictly, written in version 00. A header that breaks the grammar counts as absent, and
// the trace begins here.

import { randomBytes } from "node:crypto";

export interface TraceContext {
  readonly traceId: string;
  /** The span that called. */
  readonly spanId: string;
  readonly flags: number;
}

const SAMPLED = 0x01;
/** Flags with a meaning: sampled, and (level 2) a random trace id. Others are sent as zero. */
const KNOWN_FLAGS = 0x03;

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/;
const LENGTH_00 = 55;
/** A later version may append fields; this is more than enough for them. */
const MAX_LENGTH = 512;
const ZERO_TRACE = "0".repeat(32);
const ZERO_SPAN = "0".repeat(16);

export function parseTraceparent(text: unknown): TraceContext | undefined {
  if (typeof text !== "string" || text.length < LENGTH_00 || text.length > MAX_LENGTH) return undefined;
  const match = TRACEPARENT.exec(text);
  if (!match) return undefined;
  const [, version, traceId, spanId, flags] = match as unknown as [string, string, string, string, string];
  if (version === "ff" || traceId === ZERO_TRACE || spanId === ZERO_SPAN) return undefined;
  if (text.length > LENGTH_00 && (version === "00" || text[LENGTH_00] !== "-")) return undefined;
  // Of a later version only the sampled bit is known to keep its meaning.
  const known = version === "00" ? KNOWN_FLAGS : SAMPLED;
  return { traceId, spanId, flags: Number.parseInt(flags, 16) & known };
}

export function formatTraceparent(context: TraceContext): string {
  return `00-${context.traceId}-${context.spanId}-${(context.flags & KNOWN_FLAGS).toString(16).padStart(2, "0")}`;
}

export function isSampled(flags: number): boolean {
  return (flags & SAMPLED) === SAMPLED;
}

const MAX_TRACESTATE = 512;
const MAX_MEMBERS = 32;
const KEY = /^[a-z][a-z0-9_\-*/]{0,255}$|^[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}$/;
const VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** The text itself when it is well formed, otherwise nothing. */
export function checkTracestate(text: unknown): string | undefined {
  if (typeof text !== "string" || text.length === 0 || text.length > MAX_TRACESTATE) return undefined;
  const members = text.split(",");
  if (members.length > MAX_MEMBERS) return undefined;
  const seen = new Set<string>();
  for (const member of members) {
    const trimmed = member.replace(/^[ \t]+|[ \t]+$/g, "");
    if (trimmed === "") continue;
    const at = trimmed.indexOf("=");
    const key = trimmed.slice(0, at);
    if (at < 1 || !KEY.test(key) || !VALUE.test(trimmed.slice(at + 1)) || seen.has(key)) return undefined;
    seen.add(key);
  }
  return seen.size > 0 ? text : undefined;
}

// Asking the system for randomness costs more than a call may; a slice of a pool costs next to nothing. A slice keeps
// its pool alive, so the pool is small.
const POOL_BYTES = 1024;
let pool = "";
let next = 0;

function take(characters: number): string {
  if (next + characters > pool.length) {
    pool = randomBytes(POOL_BYTES).toString("hex");
    next = 0;
  }
  const from = next;
  next += characters;
  return pool.slice(from, next);
}

export function newTraceId(): string {
  return take(32);
}

export function newSpanId(): string {
  return take(16);
}

/** The trace id of a request that is not a call, such as a request to the admin port. */
export function traceIdFrom(traceparent: unknown): string {
  return parseTraceparent(traceparent)?.traceId ?? newTraceId();
}
