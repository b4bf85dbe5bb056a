// Information flow of one application: what each conversation has read, and where the values of a call came from. Both
// are facts for rules (`context.flow`).

import { isJsonObject, type JsonObject, type JsonValue, steadyNow } from "../../mcp/index.js";
import type { CallTarget, PolicyInput, Principal } from "../types.js";
import { type FlowLabels, LabelTable, type ResolvedLabel } from "./labels.js";
import { type SeenSource, SeenTexts } from "./seen.js";

/** What `context.flow` has. */
export interface FlowFacts extends JsonObject {
  /** Labels of what this conversation has read. */
  readonly seen: string[];
  /** What the call does. */
  readonly does: string[];
  /** By argument: `untrusted`, `trusted` or `none`, where the value occurs in no result. */
  readonly origin: Record<string, string>;
  /** The worst origin of the destinations, and of the payload. */
  readonly destination: string;
  readonly payload: string;
  /** The conversation has read private data. */
  readonly private: boolean;
  /** False when a result was dropped or may have been missed: what is not found then counts as untrusted. */
  readonly complete: boolean;
}

/** For offline questions (`policy explain`, `test`, `replay`), where no conversation is known. */
export const NO_FLOW: FlowFacts = {
  seen: [],
  does: [],
  origin: {},
  destination: "none",
  payload: "none",
  private: false,
  complete: true,
};

/** An argument of untrusted origin, for the approver. */
export interface FlowFinding {
  readonly argument: string;
  readonly value: string;
  readonly source: SeenSource | undefined;
}

export interface FlowLimits {
  /** Characters of results that are kept for one conversation; twice that with their comparable forms. */
  readonly maxChars: number;
  /** Characters of all conversations of a process. */
  readonly maxTotalChars: number;
  readonly maxConversations: number;
  /** A conversation without a session ends when it was unused for so long. */
  readonly idleMs: number;
}

export const DEFAULT_FLOW_LIMITS: FlowLimits = {
  maxChars: 512 * 1024,
  maxTotalChars: 32 * 1024 * 1024,
  maxConversations: 10_000,
  idleMs: 60 * 60_000,
};

interface Kept {
  readonly texts: SeenTexts;
  readonly labels: Set<string>;
  usedAt: number;
}

/** Whose conversation a call belongs to. */
export interface FlowCaller {
  readonly principal: Principal;
  /** Session of a revision that has sessions. */
  readonly session?: string | undefined;
}

/** Agents that may have read something that this process does not know: before a restart, or at another replica. */
export interface FlowReaders {
  has(app: string, agent: string): boolean;
}

export interface FlowOptions {
  readonly limits?: Partial<FlowLimits>;
  /** None unless given. When it fails, every agent. */
  readonly readers?: () => Promise<FlowReaders>;
  readonly now?: () => number;
}

/**
 * `FlowMemory` keeps the conversations of a process. It outlives gates and applications, which are made again at changes.
 * INVARIANT: what was forgotten counts as untrusted, never as trusted.
 */
export class FlowMemory {
  readonly #kept = new Map<string, Kept>();
  readonly #limits: FlowLimits;
  readonly #readReaders: (() => Promise<FlowReaders>) | undefined;
  #readers: FlowReaders | undefined;
  #ready: Promise<void> | undefined;
  readonly #now: () => number;
  /** Conversations that were dropped before they ended. */
  readonly #dropped = new Map<string, number>();
  #totalChars = 0;
  /** Until then every new conversation may have been dropped before. */
  #allDroppedUntil = 0;

  constructor({ limits, readers, now = steadyNow }: FlowOptions = {}) {
    this.#limits = { ...DEFAULT_FLOW_LIMITS, ...limits };
    this.#readReaders = readers;
    this.#now = now;
  }

  /** To be awaited before the first call: until then every agent may have read something. */
  ready(): Promise<void> {
    this.#ready ??= (async () => {
      this.#readers = await this.#readReaders?.();
    })().catch(() => {});
    return this.#ready;
  }

  /** A session that begins in this process has read nothing. */
  begin(caller: FlowCaller): void {
    const key = keyOf(caller);
    if (!this.#kept.has(key)) this.#keep(key, false);
  }

  of(caller: FlowCaller): Kept {
    const key = keyOf(caller);
    const now = this.#now();
    const known = this.#kept.get(key);
    if (known && (caller.session !== undefined || now - known.usedAt <= this.#limits.idleMs)) {
      known.usedAt = now;
      // The order of the map is the order of use.
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return known;
    }
    if (known) this.#forget(key);
    return this.#keep(key, this.#isUnknown(key, caller, now));
  }

  #isUnknown(key: string, { principal, session }: FlowCaller, now: number): boolean {
    if (now < this.#allDroppedUntil || (this.#dropped.get(key) ?? 0) > now) return true;
    // A session that did not begin here belongs to another process, or to this one before it was restarted.
    if (session !== undefined) return true;
    return this.#readReaders !== undefined && (this.#readers?.has(principal.app, principal.agent) ?? true);
  }

  #keep(key: string, isIncomplete: boolean): Kept {
    const kept = {
      texts: new SeenTexts(this.#limits.maxChars, isIncomplete),
      labels: new Set<string>(),
      usedAt: this.#now(),
    };
    this.#kept.set(key, kept);
    this.#makeRoom();
    return kept;
  }

  add(kept: Kept, text: string, from: Parameters<SeenTexts["add"]>[1]): void {
    const before = kept.texts.chars;
    kept.texts.add(text, from);
    this.#totalChars += kept.texts.chars - before;
    this.#makeRoom();
  }

  #makeRoom(): void {
    const { maxTotalChars, maxConversations, idleMs } = this.#limits;
    while (this.#kept.size > 1 && (this.#totalChars > maxTotalChars * 2 || this.#kept.size > maxConversations)) {
      const [oldest] = this.#kept.keys();
      if (oldest === undefined) return;
      const until = this.#now() + idleMs;
      if (this.#dropped.size >= maxConversations) {
        this.#allDroppedUntil = until;
        this.#dropped.clear();
      }
      this.#dropped.set(oldest, until);
      this.#forget(oldest);
    }
  }

  #forget(key: string): void {
    this.#totalChars -= this.#kept.get(key)?.texts.chars ?? 0;
    this.#kept.delete(key);
  }
}

/** Agents of one delegation share what they have read: one reads, and another acts. */
function keyOf({ principal, session }: FlowCaller): string {
  const { app, agent, user = "", delegation } = principal;
  if (delegation) return JSON.stringify([app, "delegation", delegation.agents[0] ?? agent, user]);
  return JSON.stringify([app, agent, user, session ?? ""]);
}

/** `InformationFlow` labels the calls of one application. */
export class InformationFlow {
  readonly #memory: FlowMemory;
  readonly #labels: LabelTable;

  constructor(labels: FlowLabels, memory: FlowMemory = new FlowMemory()) {
    this.#labels = new LabelTable(labels);
    this.#memory = memory;
  }

  facts(input: PolicyInput): { readonly facts: FlowFacts; readonly findings: readonly FlowFinding[] } {
    const { texts, labels } = this.#memory.of(input);
    const label = this.#labels.of(input.target);
    const findings: FlowFinding[] = [];
    const origin: Record<string, string> = Object.create(null);
    const worst: Record<"destination" | "payload", string> = { destination: "none", payload: "none" };
    const budget = newBudget();
    for (const [name, value] of Object.entries(input.arguments)) {
      const part = partOf(label, name);
      const found = originOf(texts, name, value, part === "destination", budget);
      // A user does not dictate an id: one that is in no result was guessed, or told by what was read.
      const isGuessed = found.origin === "none" && part === "destination" && REFERENCE.test(name);
      if (isGuessed && labels.has("untrusted")) {
        found.origin = "untrusted";
        found.findings.push({ argument: name, value: shown(value), source: undefined });
      }
      origin[name] = found.origin;
      if (part) worst[part] = worse(worst[part], found.origin);
      if (part) findings.push(...found.findings);
    }
    const seen = texts.isIncomplete ? new Set([...labels, "untrusted", ...this.#labels.secrets]) : labels;
    return {
      facts: {
        seen: [...seen].sort(),
        does: [...label.does],
        origin,
        ...worst,
        private: [...seen].some((each) => each.startsWith("private(")),
        complete: !texts.isIncomplete,
      },
      findings,
    };
  }

  /** What a call answered with, before its caller receives it. */
  observe(
    input: Pick<PolicyInput, "principal" | "session" | "target" | "arguments">,
    call: string,
    text: string,
  ): void {
    const kept = this.#memory.of(input);
    const { isTrusted, secrets } = this.#labels.of(input.target);
    // A trusted tool that repeats its arguments makes nothing trusted.
    const repeats = isTrusted && hasUntrusted(kept.texts, input.arguments);
    kept.labels.add(isTrusted && !repeats ? "trusted" : "untrusted");
    for (const secret of secrets) kept.labels.add(secret);
    const { name, server } = input.target;
    this.#memory.add(kept, text, { source: { server, name, call }, isTrusted: isTrusted && !repeats, secrets });
  }

  begin(caller: FlowCaller): void {
    this.#memory.begin(caller);
  }
}

function partOf({ destination, payload }: ResolvedLabel, name: string): "destination" | "payload" | undefined {
  if (!destination || destination.has(name)) return "destination";
  return payload.has(name) ? "payload" : undefined;
}

const RANK: Readonly<Record<string, number>> = { none: 0, trusted: 1, untrusted: 2 };

function worse(a: string, b: string): string {
  return (RANK[a] ?? 2) >= (RANK[b] ?? 2) ? a : b;
}

/** `id`, `file_ids`, `eventId`. */
const REFERENCE = /(^|[_-])ids?$|[a-z]I[dD]s?$/;
const MAX_FINDINGS = 16;
/** How much of one call is compared: the rest is untrusted without a comparison. */
const MAX_LEAVES = 128;
const MAX_COMPARED_CHARS = 32_768;
interface CompareBudget {
  leaves: number;
  chars: number;
}

const newBudget = (): CompareBudget => ({ leaves: MAX_LEAVES, chars: MAX_COMPARED_CHARS });

const MAX_SHOWN_CHARS = 200;
const MAX_FIELD_CHARS = 16;

function originOf(
  texts: SeenTexts,
  argument: string,
  value: JsonValue | undefined,
  isDestination: boolean,
  budget: CompareBudget,
): { origin: string; findings: FlowFinding[] } {
  let origin = "none";
  const findings: FlowFinding[] = [];
  const leaves = [...new Set(leavesOf(value, isDestination))];
  budget.leaves -= leaves.length;
  budget.chars -= leaves.reduce((sum, leaf) => sum + leaf.length, 0);
  // INVARIANT: a caller chooses neither how much is compared nor that it is trusted.
  if (texts.chars > 0 && (budget.leaves < 0 || budget.chars < 0)) {
    return { origin: "untrusted", findings };
  }
  for (const leaf of leaves) {
    const found = texts.find(leaf, isDestination);
    origin = worse(origin, found.origin);
    if (found.origin === "untrusted" && findings.length < MAX_FINDINGS) {
      findings.push({ argument, value: shown(leaf), source: found.source });
    }
  }
  return { origin, findings };
}

function shown(value: JsonValue | undefined): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.slice(0, MAX_SHOWN_CHARS);
}

/** Texts in a value, names of members included. A number says something as a destination, and nothing as a payload. */
function* leavesOf(value: JsonValue | undefined, isDestination: boolean, depth = 0): Iterable<string> {
  if (typeof value === "string") yield value;
  else if (typeof value === "number") {
    if (isDestination) yield String(value);
  } else if (typeof value === "object" && value !== null && depth < 64) {
    if (isJsonObject(value)) {
      for (const [name, item] of Object.entries(value)) {
        // A short name is a field; a long one may carry something.
        if (name.length > MAX_FIELD_CHARS) yield name;
        yield* leavesOf(item, isDestination, depth + 1);
      }
    } else for (const item of value) yield* leavesOf(item, isDestination, depth + 1);
  }
}

function hasUntrusted(texts: SeenTexts, args: JsonObject): boolean {
  const budget = newBudget();
  return Object.entries(args).some(
    ([name, value]) => originOf(texts, name, value, false, budget).origin === "untrusted",
  );
}

/** The reason as an approver reads it: which value came out of which result. */
export function describeFindings(reason: string, findings: readonly FlowFinding[]): string {
  const parts = findings.map(({ argument, value, source }) => {
    const from = source ? `the result of \`${source.name}\` (call ${source.call})` : "no result that is known";
    return `${argument} ${JSON.stringify(value)} was in ${from}`;
  });
  return [reason, ...parts].join("; ");
}

/** For targets that no label is about: lists, log levels, and the requests of servers. */
export function isFlowTarget({ builtin, type }: Pick<CallTarget, "builtin" | "type">): boolean {
  return !builtin && type !== "Agent" && type !== "Method";
}
