// Policy tests that people write: a file of calls with the answer each should get.

import type { Document, Node, YAMLMap } from "yaml";
import { isJsonObject, type JsonObject, nearest } from "../../mcp/index.js";
import { NO_FLOW } from "../flow/flow.js";
import { type PastCall, PastCalls, readPast } from "../history/past.js";
import { METHODS, type ServerRequestMethod, serverRequest } from "./catalog.js";
import {
  type Explanation,
  type PolicyDecision,
  PolicyInvalid,
  type PolicyProblem,
  type PolicyRequest,
  type PolicyRule,
  type PolicySet,
  type PolicyText,
  type ResourceType,
} from "./types.js";
import { DateTime } from "./value/extensions.js";

export interface PolicyCase {
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly request: PolicyRequest;
  /** Calls before it, for rules over past calls. */
  readonly past: readonly PastCall[];
  readonly expect: "permit" | "deny" | "challenge";
  /** A rule that must be among the deciding ones. */
  readonly rule?: string;
}

export interface CaseResult {
  readonly case: PolicyCase;
  readonly ok: boolean;
  /** Empty when ok. */
  readonly message: string;
  readonly explanation: Explanation;
}

const MAX_CASES = 10_000;
const MAX_BYTES = 4 * 1024 * 1024;
const FIELDS = [
  "name",
  "app",
  "agent",
  "scope",
  "user",
  "groups",
  "tool",
  "method",
  "resource",
  "server",
  "during",
  "arguments",
  "forwarded",
  "flow",
  "transport",
  "now",
  "approved",
  "past",
  "expect",
  "rule",
];
const EFFECTS = ["permit", "deny", "challenge"];

/** YAML or JSON: a list of cases, or an object with `cases`. Throws PolicyInvalid with a line for each problem. */
export async function parseCases(file: string, text: string): Promise<PolicyCase[]> {
  // Loaded here and not with the gate: deciding does not need a YAML parser.
  const yaml = await import("yaml");
  const problems: PolicyProblem[] = [];
  const lines = new yaml.LineCounter();
  const report = (offset: number, message: string, help = ""): void => {
    const { line, col } = lines.linePos(offset);
    problems.push({ file, line, column: col, message, help });
  };
  if (text.length > MAX_BYTES)
    throw new PolicyInvalid([{ file, line: 0, column: 0, message: "is too large", help: "" }]);
  const document = yaml.parseDocument(text, { lineCounter: lines, strict: true, uniqueKeys: true });
  for (const error of document.errors) report(error.pos[0], error.message);
  const top = document.contents;
  const items = yaml.isMap(top) ? top.get("cases") : top;
  if (!yaml.isSeq(items)) {
    if (problems.length === 0) report(0, "has no cases", "write `cases:` and a list below it");
    throw new PolicyInvalid(problems);
  }
  if (items.items.length > MAX_CASES) report(0, `has more than ${MAX_CASES} cases`, "split the file");
  const cases =
    problems.length > 0
      ? []
      : items.items.flatMap((item, index) => {
          const offset = (item as Node).range?.[0] ?? 0;
          if (yaml.isMap(item))
            return readCase(item, document, file, lines.linePos(offset).line, index + 1, report) ?? [];
          report(offset, "is not a case", "a case has agent, tool, arguments and expect");
          return [];
        });
  if (problems.length > 0) throw new PolicyInvalid(problems);
  return cases;
}

function readCase(
  item: YAMLMap,
  document: Document,
  file: string,
  line: number,
  number: number,
  report: (offset: number, message: string, help?: string) => void,
): PolicyCase | undefined {
  const at = item.range?.[0] ?? 0;
  let good = true;
  const wrong = (message: string, help = "", offset = at): void => {
    good = false;
    report(offset, message, help);
  };
  for (const pair of item.items) {
    const key = String((pair.key as { value?: unknown } | null)?.value ?? "?");
    if (FIELDS.includes(key)) continue;
    const meant = nearest(key, FIELDS);
    const help = meant ? `did you mean ${meant}?` : `known are ${FIELDS.join(", ")}`;
    wrong(`a case has no ${key}`, help, (pair.key as Node | undefined)?.range?.[0] ?? at);
  }
  const fields = item.toJS(document, { maxAliasCount: 100 }) as Readonly<Record<string, unknown>>;
  const text = (name: string, otherwise: string): string => {
    const value = fields[name] ?? otherwise;
    if (typeof value === "string" && value !== "") return value;
    wrong(`${name} must be a text`);
    return otherwise;
  };
  const texts = (name: string): string[] => {
    const value = fields[name] ?? [];
    if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
    wrong(`${name} must be a list of texts`);
    return [];
  };
  const expect = text("expect", "?");
  if (!EFFECTS.includes(expect)) wrong("expect must be permit, deny or challenge");
  const args = fields.arguments ?? {};
  if (!isJsonObject(args)) wrong("arguments must be an object");
  const forwarded = fields.forwarded ?? {};
  if (!isJsonObject(forwarded)) wrong("forwarded must be an object", "write _meta, inputResponses or further fields");
  const flow = fields.flow ?? {};
  if (!isJsonObject(flow)) wrong("flow must be an object", "write facts of context.flow");
  const user = fields.user === undefined ? undefined : text("user", "?");
  const caller = {
    app: text("app", "local"),
    agent: text("agent", "local"),
    scope: texts("scope"),
    user,
    groups: texts("groups"),
  };
  const now = fields.now === undefined ? undefined : DateTime.parse(text("now", ""))?.ms;
  if (fields.now !== undefined && now === undefined) wrong("now must be a time", "write now: 2030-01-31T09:30:00Z");
  const target = readServerRequest(fields, caller, wrong) ?? readTarget(fields, wrong);
  const past = readPast(fields.past ?? [], caller.agent, wrong);
  if (!good || !target) return undefined;
  const request: PolicyRequest = {
    ...caller,
    ...target,
    arguments: args as JsonObject,
    forwarded: forwarded as JsonObject,
    flow: { ...NO_FLOW, ...(flow as JsonObject) },
    transport: text("transport", "stdio"),
    now: now === undefined ? undefined : Number(now),
    approvedRules: texts("approved"),
  };
  const rule = fields.rule === undefined ? {} : { rule: text("rule", "?") };
  const name = text("name", `case ${number}`);
  return good ? { name, file, line, request, past, expect: expect as PolicyCase["expect"], ...rule } : undefined;
}

/** A case about a request of a server: `agent` is whose client would be asked, `during` the tool it has called. */
function readServerRequest(
  { method, server, during = "" }: Readonly<Record<string, unknown>>,
  caller: Pick<PolicyRequest, "app" | "agent" | "scope" | "user" | "groups">,
  wrong: (message: string, help?: string) => void,
): ReturnType<typeof serverRequest> | undefined {
  if (typeof method !== "string" || !METHODS[method]?.includes("Agent")) return undefined;
  if (typeof server !== "string" || server === "" || typeof during !== "string") {
    wrong(`${method} needs a server`, "server: github, and the tool in flight as during: github.create_issue");
    return undefined;
  }
  return serverRequest({ ...caller, server, method: method as ServerRequestMethod, tool: during });
}

function readTarget(
  fields: Readonly<Record<string, unknown>>,
  wrong: (message: string, help?: string) => void,
): Pick<PolicyRequest, "action" | "resource"> | undefined {
  const { tool, method, resource } = fields;
  if (typeof tool === "string" && method === undefined) {
    return { action: tool, resource: { type: "Tool", id: tool, ...(isJsonObject(resource) ? partsOf(resource) : {}) } };
  }
  const types = typeof method === "string" ? METHODS[method] : undefined;
  const [type] = types ?? [];
  if (typeof method !== "string" || tool !== undefined || !type) {
    wrong("a case is about one tool or one method", `methods are ${Object.keys(METHODS).join(", ")}`);
    return undefined;
  }
  if (type === "Method") return { action: method, resource: { type, id: method } };
  if (type === "Agent") return undefined;
  const parts = typeof resource === "string" ? { id: resource } : isJsonObject(resource) ? resource : {};
  const said = parts.type ?? type;
  if (typeof parts.id !== "string" || !types?.includes(said as ResourceType)) {
    wrong(`${method} needs a resource`, "resource: file:///a, or resource: { id: …, server: … }");
    return undefined;
  }
  return { action: method, resource: { type: said as ResourceType, id: parts.id, ...partsOf(parts) } };
}

function partsOf(resource: JsonObject): { server?: string; tags?: string[]; readOnly?: boolean } {
  const { server, tags, readOnly } = resource;
  return {
    ...(typeof server === "string" ? { server } : {}),
    ...(Array.isArray(tags) ? { tags: tags.map(String) } : {}),
    ...(typeof readOnly === "boolean" ? { readOnly } : {}),
  };
}

/** `overrule` is for what else has a say in a call: its schema, a guardrail. */
export function runCases(
  policy: PolicySet,
  cases: readonly PolicyCase[],
  overrule: (each: PolicyCase, explanation: Explanation) => Explanation = (_each, explanation) => explanation,
): CaseResult[] {
  return cases.map((each) => {
    const explanation = overrule(each, policy.explain(withPast(policy, each)));
    const message = mismatch(each, explanation);
    return { case: each, ok: message === "", message, explanation };
  });
}

/** Cases have no clock: the call comes at one moment, unless it says when, and those before it so long ago. */
const NOW = Date.UTC(2030, 0, 1);

function withPast(policy: PolicySet, { request, past }: PolicyCase): PolicyRequest {
  if (policy.conditions.length === 0) return request;
  const { now = NOW } = request;
  const calls = new PastCalls(policy);
  for (const call of [...past].sort((a, b) => b.agoMs - a.agoMs)) calls.addCall(call, request.app, now);
  calls.enter(request, now);
  return calls.decided(request);
}

function mismatch(each: PolicyCase, { decision, rules }: Explanation): string {
  const deciding = decision.rules.map(ruleText).join(", ");
  const by = deciding === "" ? "by no rule" : `by ${deciding}`;
  if (decision.effect !== each.expect) {
    const shown = rules.filter((rule) => !["principal", "action"].includes(rule.decidedBy.part));
    const lines = shown.map(
      (rule) => `  ${rule.id} ${describe(rule)}: ${oneLine(rule.decidedBy.text)} (${rule.file}:${rule.decidedBy.line})`,
    );
    return [`${each.name}: expected ${each.expect}, got ${decision.effect} ${by}: ${decision.reason}`, ...lines].join(
      "\n",
    );
  }
  if (each.rule === undefined || decision.rules.some((rule) => rule.id === each.rule)) return "";
  return `${each.name}: ${decision.effect} as expected, but ${by} instead of ${each.rule}`;
}

function describe(rule: Explanation["rules"][number]): string {
  if (rule.error !== undefined) return `failed (${rule.error}) at`;
  return rule.matched ? `(${rule.effect}) matched` : `(${rule.effect}) did not match because of`;
}

/** A problem outside a rule, for example in the schema, has no position in a file. */
function ruleText({ id, file, line }: Explanation["decision"]["rules"][number]): string {
  return file === "" ? id : `${id} (${file}:${line})`;
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").slice(0, 200);
}

export interface RuleChange {
  readonly id: string;
  readonly before: PolicyText;
  readonly after: PolicyText;
}

export interface DecisionChange {
  readonly request: PolicyRequest;
  readonly before: PolicyDecision;
  readonly after: PolicyDecision;
}

export interface PolicyDiff {
  readonly added: PolicyRule[];
  readonly removed: PolicyRule[];
  readonly changed: RuleChange[];
  /** Those whose effect, approvers or obligations differ; another rule with the same answer is not a change. */
  readonly decisions: DecisionChange[];
  readonly compared: number;
}

export function diffPolicies(before: PolicySet, after: PolicySet, requests: Iterable<PolicyRequest>): PolicyDiff {
  const old = new Map(before.rules.map((rule) => [rule.id, rule]));
  const now = new Map(after.rules.map((rule) => [rule.id, rule]));
  const changed: RuleChange[] = [];
  for (const [id, rule] of now) {
    const was = old.get(id);
    if (was && was.digest !== rule.digest) changed.push({ id, before: was, after: rule });
  }
  const decisions: DecisionChange[] = [];
  let compared = 0;
  for (const request of requests) {
    compared++;
    const was = before.decide(request);
    const is = after.decide(request);
    if (outcomeOf(was) !== outcomeOf(is)) decisions.push({ request, before: was, after: is });
  }
  return {
    added: after.rules.filter((rule) => !old.has(rule.id)).map(place),
    removed: before.rules.filter((rule) => !now.has(rule.id)).map(place),
    changed,
    decisions,
    compared,
  };
}

function outcomeOf({ effect, approvers, obligations }: PolicyDecision): string {
  return JSON.stringify([effect, [...approvers].sort(), obligations.map((each) => JSON.stringify(each)).sort()]);
}

function place({ id, file, line }: PolicyRule): PolicyRule {
  return { id, file, line };
}
