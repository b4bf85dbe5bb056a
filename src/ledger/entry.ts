import { createHash } from "node:crypto";
import { LedgerUnavailable } from "./errors.js";

// The contents of a record. To add a field: add it to the interface and, for the two kinds on the hot path, to their
// encoder. To add a kind: add an interface to the union. Readers keep fields they do not know; `v` changes only when
// a reader of the old form would misread the new one.

const FORMAT_VERSION = 1;

type Detail = Readonly<Record<string, unknown>>;

interface Base {
  /** Milliseconds since 1970; now when absent. Recorded as an ISO 8601 time in UTC. */
  readonly ts?: number;
  /** Anything more that a reader may want. Must be plain JSON. */
  readonly detail?: Detail;
}

export type RecordedEffect = "permit" | "deny" | "challenge";
export type Mode = "enforce" | "observe";
export type Outcome = "ok" | "tool_error" | "timeout" | "cancelled" | "failed" | "unknown";

/** What was decided about a call; durable before the call runs. */
export interface DecisionEntry extends Base {
  readonly kind: "decision";
  readonly call: string;
  readonly trace: string;
  /** Content id of the whole intent: what was decided, approved, recorded and sent carries it. */
  readonly intent?: string;
  readonly app: string;
  readonly agent: string;
  /** `app/agent`. */
  readonly actor: string;
  readonly method: string;
  readonly tool: string;
  readonly binding: string;
  readonly args_cid: string;
  readonly effect: RecordedEffect;
  /** Ids of the rules that decided. */
  readonly rules: readonly string[];
  /** Hash of the policy the call was decided under. */
  readonly policy: string;
  readonly reason: string;
  readonly mode: Mode;
  /** Canonical text of the arguments, up to 64 KiB; kept only where the operator chose `keepArguments`. */
  readonly args?: string;
  /** Canonical text of what travelled beside the arguments; kept where the arguments are, when there was something. */
  readonly forwarded?: string;
}

/** How a permitted call ended. */
export interface OutcomeEntry extends Base {
  readonly kind: "outcome";
  readonly call: string;
  readonly trace: string;
  readonly actor: string;
  readonly tool: string;
  readonly args_cid: string;
  readonly outcome: Outcome;
  /** Null when not known, as for `unknown`. */
  readonly latency_ms: number | null;
  readonly bytes: number | null;
}

export interface ChallengeEntry extends Base {
  readonly kind: "challenge";
  readonly challenge: string;
  /** `restored`: redeemed for a call that never started, and given back. */
  readonly event: "opened" | "joined" | "expired" | "redeemed" | "restored";
  readonly call: string;
  readonly trace: string;
  readonly actor: string;
  readonly tool: string;
  readonly args_cid: string;
  readonly rules: readonly string[];
  readonly approvers: readonly string[];
  readonly policy: string;
}

export interface ApprovalEntry extends Base {
  readonly kind: "approval";
  readonly challenge: string;
  readonly approver: string;
  readonly verdict: "approved" | "denied";
  readonly reason: string;
  readonly args_cid: string;
  readonly rules: readonly string[];
  readonly policy: string;
}

export interface PolicyEntry extends Base {
  readonly kind: "policy";
  readonly old: string | null;
  readonly new: string;
}

export interface AdminEntry extends Base {
  readonly kind: "admin";
  readonly actor: string;
  readonly action: string;
}

/** A signing key came into use. Both are C2SP verifier keys. */
export interface KeyEntry extends Base {
  readonly kind: "key";
  readonly old: string | null;
  readonly new: string;
}

/** A process began to write this ledger. */
export interface StartEntry extends Base {
  readonly kind: "start";
  readonly origin: string;
  readonly pid: number;
  readonly node: string;
  /** What the last power cut or crash left half-written and was removed; null when nothing was. */
  readonly torn: { readonly bytes: number; readonly sha256: string } | null;
  /** How many permitted calls had no outcome; each got an `unknown` one. */
  readonly unknown: number;
}

export type LedgerEntry =
  | DecisionEntry
  | OutcomeEntry
  | ChallengeEntry
  | ApprovalEntry
  | PolicyEntry
  | AdminEntry
  | KeyEntry
  | StartEntry;

/** An entry as it is read back: what the ledger adds stands beside what was given. */
export type LedgerRecord = {
  [K in LedgerEntry["kind"]]: Recorded<Extract<LedgerEntry, { kind: K }>>;
}[LedgerEntry["kind"]];

type Recorded<E> = Omit<E, "ts"> & {
  readonly v: number;
  readonly seq: number;
  /** Base64 leaf hash of the record before. */
  readonly prev: string;
  readonly nonce: string;
  /** ISO 8601, UTC. */
  readonly ts: string;
};

/** The call this entry opens, because something will run for it. In observe mode even a denied call runs. */
export function opensCall(entry: LedgerEntry | LedgerRecord): string | undefined {
  return entry.kind === "decision" && (entry.effect === "permit" || entry.mode === "observe") ? entry.call : undefined;
}

export function closesCall(entry: LedgerEntry | LedgerRecord): string | undefined {
  return entry.kind === "outcome" ? entry.call : undefined;
}

/** Names and URIs are often the caller's own words. One that is longer is cut, and its hash stands beside what is left. */
const MAX_NAME_CHARS = 256;
const MAX_REASON_CHARS = 2_048;
const MAX_RULES = 256;
/** Larger arguments are known by `args_cid` alone. */
const MAX_ARGUMENT_CHARS = 64 * 1024;

export function cutEntryText(text: string, max: number = MAX_NAME_CHARS): string {
  if (text.length <= max) return text;
  // Half of a surrogate pair is not text.
  const end = /[\uD800-\uDBFF]/.test(text[max - 1] as string) ? max - 1 : max;
  const hash = createHash("sha256").update(text).digest("hex");
  return `${text.slice(0, end)}… (${text.length} characters, sha256 ${hash})`;
}

const NEEDS_ESCAPE = /[^\x20\x21\x23-\x5b\x5d-\x7e]/;

/** A JSON string. Ids, names and hashes need no escaping, and checking that is much cheaper than escaping. */
function quote(text: string): string {
  return NEEDS_ESCAPE.test(text) ? JSON.stringify(text) : `"${text}"`;
}

/** Names, rules and policies are the same record after record; their JSON is remembered, within a bound. */
const MAX_REMEMBERED = 2_048;
const remembered = new Map<string, string>();

function quoteName(text: string): string {
  if (text.length > MAX_NAME_CHARS) return quote(cutEntryText(text));
  let quoted = remembered.get(text);
  if (quoted === undefined) {
    quoted = quote(text);
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    remembered.set(text, quoted);
  }
  return quoted;
}

function quoteReason(text: string): string {
  return text.length <= MAX_NAME_CHARS ? quoteName(text) : quote(cutEntryText(text, MAX_REASON_CHARS));
}

function quoteAll(texts: readonly string[]): string {
  let list = "[";
  for (let i = 0; i < texts.length && i < MAX_RULES; i++) list += (i === 0 ? "" : ",") + quoteName(texts[i] as string);
  return `${list}]`;
}

function number(value: number | null): string {
  return value === null || !Number.isFinite(value) ? "null" : String(value);
}

let lastMs = -1;
let lastIso = "";

function isoTime(ms: number): string {
  if (ms !== lastMs) {
    lastIso = new Date(ms).toISOString();
    lastMs = ms;
  }
  return lastIso;
}

function decisionFields(e: DecisionEntry, keepArguments: boolean): string {
  const intent = e.intent === undefined ? "" : `"intent":${quote(e.intent)},`;
  const isKept = keepArguments && e.args !== undefined && e.args.length <= MAX_ARGUMENT_CHARS;
  const args = isKept ? `,"args":${quote(e.args as string)}` : "";
  const forwarded = keepArguments && e.forwarded !== undefined ? `,"forwarded":${quote(e.forwarded)}` : "";
  return (
    `,"call":${quote(e.call)},"trace":${quote(e.trace)},${intent}"app":${quoteName(e.app)},"agent":${quoteName(e.agent)}` +
    `,"actor":${quoteName(e.actor)},"method":${quoteName(e.method)},"tool":${quoteName(e.tool)},"binding":${quoteName(e.binding)}` +
    `,"args_cid":${quote(e.args_cid)},"effect":"${e.effect}","rules":${quoteAll(e.rules)}` +
    `,"policy":${quoteName(e.policy)},"reason":${quoteReason(e.reason)},"mode":"${e.mode}"${args}${forwarded}`
  );
}

function outcomeFields(e: OutcomeEntry): string {
  return (
    `,"call":${quote(e.call)},"trace":${quote(e.trace)},"actor":${quoteName(e.actor)},"tool":${quoteName(e.tool)}` +
    `,"args_cid":${quote(e.args_cid)},"outcome":"${e.outcome}"` +
    `,"latency_ms":${number(e.latency_ms)},"bytes":${number(e.bytes)}`
  );
}

const NAMES = new Set(["actor", "tool", "approver", "action"]);
const RESERVED = new Set(["v", "seq", "prev", "nonce", "kind", "ts", "detail"]);

function otherFields(entry: LedgerEntry): string {
  let fields = "";
  for (const [name, value] of Object.entries(entry)) {
    if (RESERVED.has(name) || value === undefined) continue;
    const text = typeof value === "string" ? cutEntryText(value, MAX_REASON_CHARS) : value;
    fields += `,${quote(name)}:${JSON.stringify(NAMES.has(name) ? cutEntryText(String(value)) : text)}`;
  }
  return fields;
}

function fieldsOf(entry: LedgerEntry, keepArguments: boolean): string {
  switch (entry.kind) {
    case "decision":
      return decisionFields(entry, keepArguments);
    case "outcome":
      return outcomeFields(entry);
    default:
      return otherFields(entry);
  }
}

/** What depends on the entry alone: everything after the head that gives it its place in the chain. */
export function encodeBody(entry: LedgerEntry, keepArguments: boolean): string {
  try {
    const detail = entry.detail === undefined ? "" : `,"detail":${JSON.stringify(entry.detail)}`;
    const ts = isoTime(entry.ts ?? Date.now());
    return `"kind":"${entry.kind}","ts":"${ts}"${fieldsOf(entry, keepArguments)}${detail}}`;
  } catch (error) {
    throw new LedgerUnavailable(
      "entry_invalid",
      `a ${String(entry?.kind)} record cannot be written as JSON: ${(error as Error).message}`,
      "give every field a plain JSON value",
      error,
    );
  }
}

export function encodeHead(seq: number, prev: string, nonce: string): string {
  return `{"v":${FORMAT_VERSION},"seq":${seq},"prev":"${prev}","nonce":"${nonce}",`;
}

// Longer than any head: version and seq have at most 16 digits.
const HEAD_BYTES = 160;
const HEAD = /^\{"v":\d{1,4},"seq":(0|[1-9]\d{0,15}),"prev":"([A-Za-z0-9+/]{43}=)","nonce":"[\w-]{22}","kind":"/;

export interface Head {
  readonly seq: number;
  readonly prev: string;
}

/** The sequence number that a line claims, or undefined when it is not a record. Reads only the first bytes. */
export function parseHead(line: Buffer): Head | undefined {
  const match = HEAD.exec(line.toString("latin1", 0, HEAD_BYTES));
  return match === null ? undefined : { seq: Number(match[1]), prev: match[2] as string };
}

/** Reads one line back, or undefined when it is not a record. */
export function parseRecord(line: Buffer): LedgerRecord | undefined {
  if (parseHead(line) === undefined) return undefined;
  try {
    return JSON.parse(line.toString("utf8")) as LedgerRecord;
  } catch {
    return undefined;
  }
}
