// Decisions as the console shows them: pages and figures read backwards from the ends of the ledgers, within a bound.

import type { DecisionRow, ExplanationView, OperationHandlers, RecordRow } from "../../admin/index.js";
import { type LedgerRecord, type NamedLedger, prove, read, readLast } from "../../ledger/index.js";
import type { JsonObject } from "../../mcp/index.js";
import { METHODS, type PolicyRequest, type PolicySet } from "../../policy/index.js";
import { visible } from "../../telemetry/index.js";
import { recordedRequest, serverOf } from "../recorded-requests.js";
import { type CheckedTools, type ServedTool, schemaProblems, withProblems } from "../served.js";
import { type ConsoleParts, invalid, KEPT, ledgersOf, notFound, placeOfRecord, toolsOf } from "./parts.js";

type DecisionRecord = Extract<LedgerRecord, { kind: "decision" }>;
type OutcomeRecord = Extract<LedgerRecord, { kind: "outcome" }>;

const PAGE_BYTES = 16 * 1024 * 1024;
const FIGURE_BYTES = 48 * 1024 * 1024;
/** An outcome stands a little after its decision: so far past the end of a page it is looked for. */
const OUTCOME_RECORDS = 256;
/** The records of a call are looked for this far after its decision. */
const CALL_RECORDS = 20_000;
const DEFAULT_LIMIT = 100;

export interface DecisionFilter {
  readonly app?: string | undefined;
  readonly agent?: string | undefined;
  readonly user?: string | undefined;
  readonly tool?: string | undefined;
  readonly effect?: string | undefined;
  readonly rule?: string | undefined;
  readonly trace?: string | undefined;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly all?: string | undefined;
}

export function matcherOf(filter: DecisionFilter): (record: DecisionRecord) => boolean {
  const { app, agent, user, tool, effect, rule, trace, all } = filter;
  const [from, to] = [timeOf(filter.from, "from"), timeOf(filter.to, "to")];
  const isPattern = tool?.endsWith("*") === true;
  const toolStart = isPattern ? tool.slice(0, -1) : tool;
  return (record) =>
    (all === "1" || !isBuiltin(record)) &&
    (app === undefined || record.app === app) &&
    (agent === undefined || record.agent === agent) &&
    (user === undefined || userOf(record) === user) &&
    (toolStart === undefined || (isPattern ? record.tool.startsWith(toolStart) : record.tool === toolStart)) &&
    (effect === undefined || record.effect === effect) &&
    (rule === undefined || record.rules.includes(rule)) &&
    (trace === undefined || record.trace === trace || record.call === trace) &&
    (from === undefined || record.ts >= from) &&
    (to === undefined || record.ts < to);
}

function timeOf(text: string | undefined, field: string): string | undefined {
  if (text === undefined || text === "") return undefined;
  const at = Date.parse(text);
  if (Number.isNaN(at)) throw invalid(`\`${field}\` is not a time`);
  return new Date(at).toISOString();
}

/** Lists, pings and the like, which no rule of the operator decides. */
function isBuiltin({ rules }: DecisionRecord): boolean {
  return rules.some((rule) => rule.startsWith("builtin."));
}

function userOf({ detail }: DecisionRecord): string | undefined {
  const user = detail?.user;
  return typeof user === "string" ? user : undefined;
}

export function decisionRow(ledger: string, record: DecisionRecord, outcome?: OutcomeRecord): DecisionRow {
  const { seq, ts, call, trace, app, agent, method, tool, binding, effect, mode, rules, reason, policy } = record;
  const user = userOf(record);
  return {
    id: `${ledger}#${seq}`,
    ledger,
    seq,
    at: ts,
    call,
    trace,
    app,
    agent: visible(agent),
    ...(user === undefined ? {} : { user: visible(user) }),
    method: visible(method),
    tool: visible(tool),
    server: visible(serverOf(binding)),
    effect,
    mode,
    rules,
    reason: visible(reason),
    policy,
    arguments_id: record.args_cid,
    ...(record.args === undefined ? {} : { arguments: visible(record.args) }),
    ...(outcome === undefined
      ? {}
      : {
          outcome: outcome.outcome,
          ...(outcome.latency_ms === null ? {} : { latency_ms: outcome.latency_ms }),
          ...(outcome.bytes === null ? {} : { bytes: outcome.bytes }),
        }),
  };
}

interface ScannedPage {
  readonly rows: readonly DecisionRow[];
  readonly records: readonly { readonly ledger: NamedLedger; readonly record: DecisionRecord }[];
  readonly next: Cursor | undefined;
}

/** For each ledger the record below which the next page begins; a ledger that is not in it is at its end. */
type Cursor = Readonly<Record<string, number>>;

/** The newest decisions that fit, below the cursor. */
export async function pageOfDecisions(
  ledgers: readonly NamedLedger[],
  isWanted: (record: DecisionRecord) => boolean,
  limit: number,
  cursor?: Cursor,
  maxBytes = PAGE_BYTES,
): Promise<ScannedPage> {
  const outcomes = new Map<string, OutcomeRecord>();
  const found: { ledger: NamedLedger; record: DecisionRecord }[] = [];
  const scans: { ledger: NamedLedger; lowest: number; isAtEnd: boolean; count: number }[] = [];
  for (const ledger of ledgers) {
    const before = cursor === undefined ? Number.POSITIVE_INFINITY : cursor[ledger.name];
    if (before === undefined) continue;
    let lowest = before;
    const filter = (record: LedgerRecord): boolean => {
      if (record.kind === "outcome") outcomes.set(record.call, record);
      if (record.seq >= before) return false;
      lowest = record.seq;
      return record.kind === "decision" && isWanted(record);
    };
    const above = Number.isFinite(before) ? before + OUTCOME_RECORDS : undefined;
    const { records, complete } = await readLast(ledger.path, limit, { filter, maxBytes, before: above });
    for (const record of records) found.push({ ledger, record: record as DecisionRecord });
    scans.push({ ledger, lowest, isAtEnd: complete && records.length < limit, count: records.length });
  }
  found.sort((a, b) => (a.record.ts < b.record.ts ? 1 : a.record.ts > b.record.ts ? -1 : b.record.seq - a.record.seq));
  const taken = found.slice(0, limit);
  const next: Record<string, number> = {};
  for (const { ledger, lowest, isAtEnd, count } of scans) {
    const mine = taken.filter((each) => each.ledger === ledger);
    const isAllTaken = mine.length === count;
    if (isAllTaken && isAtEnd) continue;
    const last = mine.at(-1)?.record.seq ?? cursor?.[ledger.name];
    if (isAllTaken) next[ledger.name] = lowest;
    else next[ledger.name] = last ?? (found.find((each) => each.ledger === ledger)?.record.seq ?? lowest) + 1;
  }
  return {
    records: taken,
    rows: taken.map(({ ledger, record }) => decisionRow(ledger.name, record, outcomes.get(record.call))),
    next: Object.keys(next).length === 0 ? undefined : next,
  };
}

function readCursor(text: string | undefined): Cursor | undefined {
  if (text === undefined || text === "") return undefined;
  try {
    const cursor = JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as unknown;
    if (typeof cursor === "object" && cursor !== null && !Array.isArray(cursor)) {
      const entries = Object.entries(cursor);
      if (entries.every(([, seq]) => Number.isSafeInteger(seq))) return Object.fromEntries(entries) as Cursor;
    }
  } catch {
    // Reported below.
  }
  throw invalid("`cursor` is not the `next` of a page");
}

interface Figures {
  readonly from?: string;
  readonly bucket_ms: number;
  readonly buckets: { at: string; permit: number; deny: number; challenge: number }[];
  readonly latency: { calls: number; p50_ms?: number; p95_ms?: number; p99_ms?: number };
  readonly scanned: number;
  readonly complete: boolean;
}

/** What was decided over time, with further counts by `onDecision`. */
export async function figuresOf(
  ledgers: readonly NamedLedger[],
  filter: DecisionFilter,
  count: number,
  onDecision: (record: DecisionRecord) => void = () => {},
): Promise<Figures> {
  const isWanted = matcherOf(filter);
  const seen: { at: number; effect: DecisionRecord["effect"] }[] = [];
  const latencies: number[] = [];
  const latencyOf = new Map<string, number>();
  const from = timeOf(filter.from, "from");
  let [scanned, isComplete] = [0, true];
  for (const { path } of ledgers) {
    const collect = (record: LedgerRecord): boolean => {
      scanned++;
      if (record.kind === "outcome" && record.latency_ms !== null) latencyOf.set(record.call, record.latency_ms);
      if (record.kind === "decision" && isWanted(record)) {
        seen.push({ at: Date.parse(record.ts), effect: record.effect });
        const latency = latencyOf.get(record.call);
        if (latency !== undefined) latencies.push(latency);
        latencyOf.delete(record.call);
        onDecision(record);
      }
      // A record before the time asked for ends the search.
      return from !== undefined && record.ts < from;
    };
    const { complete } = await readLast(path, 1, { filter: collect, maxBytes: FIGURE_BYTES / ledgers.length });
    isComplete &&= complete;
  }
  latencies.sort((a, b) => a - b);
  const at = (part: number): number =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] as number;
  const latency = {
    calls: latencies.length,
    ...(latencies.length === 0 ? {} : { p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }),
  };
  if (seen.length === 0) return { bucket_ms: 60_000, buckets: [], latency, scanned, complete: isComplete };
  let [first, last] = [Number.POSITIVE_INFINITY, 0];
  for (const { at: time } of seen) {
    first = Math.min(first, time);
    last = Math.max(last, time);
  }
  const start = from === undefined ? first : Math.max(Date.parse(from), Math.min(first, Date.parse(from)));
  const end = filter.to === undefined || filter.to === "" ? Math.max(last + 1, Date.now()) : Date.parse(filter.to);
  const width = roundWidth((end - start) / count);
  const origin = Math.floor(start / width) * width;
  const total = Math.min(count + 1, Math.floor((Math.max(end, last + 1) - origin) / width) + 1);
  const buckets = Array.from({ length: total }, (_, i) => ({
    at: new Date(origin + i * width).toISOString(),
    permit: 0,
    deny: 0,
    challenge: 0,
  }));
  for (const { at: time, effect } of seen) {
    const bucket = buckets[Math.min(total - 1, Math.max(0, Math.floor((time - origin) / width)))];
    if (bucket) bucket[effect]++;
  }
  return { from: buckets[0]?.at as string, bucket_ms: width, buckets, latency, scanned, complete: isComplete };
}

const WIDTHS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];

function roundWidth(ms: number): number {
  const fitting = WIDTHS_S.find((seconds) => seconds * 1_000 >= ms);
  return fitting === undefined ? Math.ceil(ms / 86_400_000) * 86_400_000 : fitting * 1_000;
}

export function explanationView(explanation: CheckedTools, set: PolicySet): ExplanationView {
  const { decision, rules, refusedBy, problems } = explanation;
  const texts = new Map(set.rules.map(({ id, text }) => [id, text]));
  return {
    effect: decision.effect,
    reason: visible(decision.reason),
    rules: rules.map(({ id, file, line, effect, matched, decidedBy, values, error }) => {
      const text = texts.get(id);
      return {
        id,
        file,
        line,
        effect,
        matched,
        ...(text === undefined ? {} : { text }),
        deciding: decidedBy,
        values: values.map(({ expression, value, problem }) => ({
          expression,
          ...(value === undefined ? {} : { value: visible(value) }),
          ...(problem === undefined ? {} : { problem }),
        })),
        ...(error === undefined ? {} : { error }),
      };
    }),
    ...(refusedBy === undefined ? {} : { refused_by: refusedBy }),
    problems: problems.map(({ path, message, expected }) =>
      visible(`${path === "" ? "the arguments" : path}: ${message}${expected ? ` (right: ${expected})` : ""}`),
    ),
    errors: decision.errors,
  };
}

export async function explainedView(
  set: PolicySet,
  tools: readonly ServedTool[],
  request: PolicyRequest,
): Promise<ExplanationView> {
  const problems = await schemaProblems(tools, request);
  return explanationView(withProblems(tools, request, set.explain(request), problems), set);
}

const TEXT_FIELDS = new Set(["v", "prev", "nonce"]);

export function recordRow(ledger: string, record: LedgerRecord): RecordRow {
  const shown = Object.fromEntries(
    Object.entries(record)
      .filter(([field]) => !TEXT_FIELDS.has(field))
      .map(([field, value]) => [field, typeof value === "string" ? visible(value) : value]),
  );
  const { seq, ts, kind } = record;
  return {
    id: `${ledger}#${seq}`,
    seq,
    at: ts,
    kind,
    summary: visible(summaryOf(record)),
    record: shown as unknown as RecordRow["record"],
  };
}

function summaryOf(record: LedgerRecord): string {
  switch (record.kind) {
    case "decision":
      return `${record.effect} ${record.actor} ${record.tool}: ${record.rules.join(", ") || record.reason}`;
    case "outcome":
      return `${record.tool} ended: ${record.outcome}${record.latency_ms === null ? "" : `, ${record.latency_ms} ms`}`;
    case "challenge":
      return `approval request ${record.challenge} ${record.event}: ${record.actor} ${record.tool}`;
    case "approval":
      return `${record.verdict} by ${record.approver}: ${record.challenge}${record.reason === "" ? "" : ` (${record.reason})`}`;
    case "policy":
      return `policy ${record.new.slice(0, 12)} in force`;
    case "admin":
      return `${record.action} by ${record.actor}`;
    case "key":
      return `signing key ${record.new.split("+")[1] ?? ""} in use`;
    case "start":
      return `started: process ${record.pid}, node ${record.node}`;
  }
}

/** The decision at this place, for a caller that may see its application. */
async function decisionAt(parts: ConsoleParts, id: string, app: string | undefined) {
  const { ledger, seq } = placeOfRecord(parts, id);
  for await (const { record } of read(ledger.path, { from: seq, to: seq + 1 })) {
    if (record.kind === "decision" && (app === undefined || record.app === app)) return { ledger, record };
  }
  throw notFound("there is no such decision");
}

/** Every record of a call, and of the approval that it needed. */
async function recordsOfCall(ledger: NamedLedger, decision: DecisionRecord): Promise<LedgerRecord[]> {
  const from = Math.max(0, decision.seq - 64);
  const found: LedgerRecord[] = [];
  const challenges = new Set<string>();
  for await (const { record } of read(ledger.path, { from, to: decision.seq + CALL_RECORDS })) {
    const isOfCall = "call" in record && record.call === decision.call;
    if (isOfCall && record.kind === "challenge") challenges.add(record.challenge);
    if (isOfCall || (record.kind === "approval" && challenges.has(record.challenge))) found.push(record);
    const isOver = record.kind === "outcome" && record.call === decision.call;
    if (isOver || found.length >= 100) break;
  }
  return found;
}

/** The approval of a call that was redeemed stands before its decision. */
async function approvalBefore(ledger: NamedLedger, records: readonly LedgerRecord[]): Promise<LedgerRecord[]> {
  const redeemed = records.find((record) => record.kind === "challenge" && record.event === "redeemed");
  if (redeemed?.kind !== "challenge") return [];
  const filter = (record: LedgerRecord): boolean =>
    record.kind === "approval" && record.challenge === redeemed.challenge;
  return [...(await readLast(ledger.path, 1, { filter, before: redeemed.seq, maxBytes: PAGE_BYTES })).records];
}

function testCase(request: PolicyRequest, effect: string): string {
  const { app, agent, action, resource, arguments: args, now } = request;
  const isTool = resource.type === "Tool";
  const target = isTool ? { tool: action } : { method: action, resource: { type: resource.type, id: resource.id } };
  const fields = {
    name: `${app}/${agent} calls ${resource.id}`,
    app,
    agent,
    ...target,
    arguments: args,
    ...(now === undefined ? {} : { now: new Date(now).toISOString() }),
    expect: effect,
  };
  // JSON is YAML: a name cannot become anything else than a name.
  const lines = Object.entries(fields).map(([field, value]) => `    ${field}: ${JSON.stringify(value)}`);
  return `cases:\n${lines.join("\n").replace(/^ {4}/, "  - ")}\n`;
}

export function decisionHandlers(parts: ConsoleParts): OperationHandlers {
  return {
    listDecisions: async ({ cursor, limit = DEFAULT_LIMIT, ...filter }) => {
      const { rows, next } = await pageOfDecisions(ledgersOf(parts), matcherOf(filter), limit, readCursor(cursor));
      return {
        items: rows,
        ...(next === undefined ? {} : { next: Buffer.from(JSON.stringify(next)).toString("base64url") }),
      };
    },

    getHistogram: ({ buckets = 60, ...filter }) => figuresOf(ledgersOf(parts), filter, buckets),

    explainDecision: async ({ id }, { by }) => {
      const { ledger, record } = await decisionAt(parts, id, by.app);
      const ofCall = await recordsOfCall(ledger, record);
      const records = [...(await approvalBefore(ledger, ofCall)), ...ofCall];
      const outcome = ofCall.find((each) => each.kind === "outcome");
      const signed = await signedSize(parts, ledger);
      const more = await explanationOf(parts, ledger, record);
      return {
        decision: decisionRow(ledger.name, record, outcome?.kind === "outcome" ? outcome : undefined),
        records: records.map((each) => recordRow(ledger.name, each)),
        covered: record.seq < signed,
        same_policy: false,
        ...more,
      };
    },

    proveDecision: async ({ id }, { by }) => {
      const { ledger, record } = await decisionAt(parts, id, by.app);
      return { proofs: (await prove(ledger.path, record.call)) as unknown as JsonObject[] };
    },

    getEvidence: async ({ id }, { by }) => {
      const { ledger, record } = await decisionAt(parts, id, by.app);
      const proofs = [...(await prove(ledger.path, record.call))];
      const ofCall = await recordsOfCall(ledger, record);
      for (const approval of await approvalBefore(ledger, ofCall))
        proofs.push(...(await prove(ledger.path, approval.seq)));
      const kept = await parts.storage.values.get(KEPT.policies, `${record.app} ${record.policy}`);
      const files = (kept?.value as { files?: { file: string; text: string }[] } | undefined)?.files;
      const definition = await pinnedDefinition(parts, record);
      return {
        type: "portcullis-evidence" as const,
        v: 1,
        call: record.call,
        proofs: proofs as unknown as JsonObject[],
        ...(files === undefined ? {} : { policy: { hash: record.policy, files } }),
        ...(definition === undefined ? {} : { definition }),
      };
    },
  };
}

async function explanationOf(
  parts: ConsoleParts,
  ledger: NamedLedger,
  record: DecisionRecord,
): Promise<{ explanation?: ExplanationView; unexplained?: string; same_policy?: boolean; test?: string }> {
  const served = await parts.applications.get(record.app);
  if (!served) return { unexplained: "its application is not there any more" };
  const tools = await toolsOf(served);
  const recorded = recordedRequest(ledger.name, record, tools);
  if (!recorded) {
    const isMethod = Object.hasOwn(METHODS, record.method) || record.method !== "tools/call";
    return {
      unexplained: isMethod ? "no rule of a policy decides such a call" : "its tool is not there any more",
    };
  }
  if (!recorded.hasArguments) {
    return {
      unexplained: "its arguments were not kept: start the gateway with --keep-arguments to explain later calls",
    };
  }
  const { policy } = served.gate;
  return {
    explanation: await explainedView(policy, tools, recorded.request),
    same_policy: policy.hash === record.policy,
    test: testCase(recorded.request, record.effect),
  };
}

async function pinnedDefinition({ storage }: ConsoleParts, record: DecisionRecord) {
  const server = serverOf(record.binding);
  const { items } = await storage.pins.list(record.app, server, { limit: 1_000 });
  const name = record.tool.startsWith(`${server}.`) ? record.tool.slice(server.length + 1) : record.tool;
  const pin = items.find((each) => each.kind === "tool" && (each.name === name || each.name === record.tool));
  if (!pin) return undefined;
  const { hash, definition } = pin.accepted ?? pin;
  return { hash, text: definition };
}

/** How many records the last checkpoint covers. */
export async function signedSize({ ledger: own }: ConsoleParts, { path }: NamedLedger): Promise<number> {
  const { readFile } = await import("node:fs/promises");
  const note = path === own.dir ? await own.checkpoint() : await readFile(`${path}/checkpoint`, "utf8").catch(() => "");
  return Number(String(note ?? "").split("\n")[1] ?? 0) || 0;
}
