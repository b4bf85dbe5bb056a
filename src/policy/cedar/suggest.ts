// The narrowest policy that would have permitted what was seen, written for an operator to read and change: one rule for
// each agent and tool, with what its arguments were (literal values while they are few, then a common path, a range, or
// nothing at all). What needed an approval still does, and what a rule forbade is only listed: a suggestion never reverses
// a rule of the operator.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import { type PolicyAction, PolicyCatalog } from "./catalog.js";
import { argumentsProblem, encode } from "./frame.js";
import { getExpression, hasExpression, literalTest, quotePattern, quoteString } from "./language/scan.js";
import { isSlip } from "./names.js";
import { OPEN_SHAPE, type RecordShape, type ValueShape } from "./shape.js";
import type { PolicyResource, ToolSummary } from "./types.js";
import { Decimal } from "./value/extensions.js";
import { CedarRecord, Unencodable } from "./value/value.js";

export interface ObservedCall {
  readonly app: string;
  readonly agent: string;
  readonly action: string;
  readonly resource: PolicyResource;
  /** Left out where the operator does not keep arguments. */
  readonly arguments?: JsonObject;
  /** What was decided then; a permit when nothing is said. */
  readonly effect?: "permit" | "deny" | "challenge";
  /** The rules that decided; a deny without any means that nothing permitted it. */
  readonly rules?: readonly string[];
  /** Who was to say yes. */
  readonly approvers?: readonly string[];
}

/** The same agent and tool may have been permitted, challenged and forbidden, with different arguments. */
type Kind = "forbid" | "challenge" | "permit";
/** Rules that deny a call which policy permits, and of which a policy can say nothing. */
const NOT_POLICY: ReadonlySet<string> = new Set(["guardrail.missing"]);
const MAX_NAMED = 5;

/** More resources than this are not listed one by one. */
const MAX_RESOURCES = 50;
/** Calls past this many for one agent and tool no longer change the suggestion, and are said to be left out. */
const MAX_CALLS = 100_000;

/** Conditions past these are left out, which makes the rule wider but never wrong. */
const PER_CLAUSE = 16;
const MAX_CLAUSES = 12;

const HEADER = [
  "// Suggested from calls that were seen. Read every rule before you keep it: what was seen is not what is right.",
  "// Rules are as narrow as the calls; loosen them by hand.",
];

const FORBIDS = "// Calls that a rule forbade stand here as comments. Keep those rules beside these.";

export function suggestPolicy(calls: Iterable<ObservedCall>, tools: readonly ToolSummary[]): string {
  const catalog = new PolicyCatalog(tools);
  const groups = new Map<string, ObservedCall[]>();
  const skipped = new Map<string, number>();
  for (const call of calls) {
    const why = refuse(call, catalog);
    const key = JSON.stringify([call.app, call.agent, call.action, kindOf(call)]);
    const group = groups.get(key) ?? [];
    const reason = why ?? (group.length >= MAX_CALLS ? `past the first ${MAX_CALLS} calls of one agent` : undefined);
    if (reason !== undefined) {
      skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
      continue;
    }
    group.push(call);
    groups.set(key, group);
  }
  const rules = [...groups.keys()].sort().map((key, index) => {
    const group = groups.get(key) ?? [];
    return rule(group, catalog.actions.get(group[0]?.action ?? ""), index + 1);
  });
  const notes = [...skipped].sort().map(([why, count]) => `// ${count} call${plural(count)} left out: ${comment(why)}`);
  if ([...groups.values()].some(([first]) => first && kindOf(first) === "forbid")) notes.unshift(FORBIDS);
  return `${[...HEADER, ...notes, "", ...rules].join("\n")}\n`;
}

function kindOf({ effect = "permit", rules = [] }: ObservedCall): Kind {
  if (effect !== "deny") return effect;
  return rules.length === 0 || rules.some((rule) => NOT_POLICY.has(rule)) ? "permit" : "forbid";
}

/** Calls that no policy can permit. */
function refuse(call: ObservedCall, catalog: PolicyCatalog): string | undefined {
  if (!catalog.actions.has(call.action)) return `there is no tool or method ${call.action}`;
  if (call.app === "" || call.agent === "" || call.app.includes("/"))
    return "the application or agent has no usable name";
  if (![call.app, call.agent, call.resource.id].every((text) => text.isWellFormed()))
    return "a name is not well-formed";
  return call.arguments === undefined ? undefined : argumentsProblem(call.arguments);
}

function rule(calls: readonly ObservedCall[], action: PolicyAction | undefined, number: number): string {
  const [first] = calls;
  if (!first || !action) return "";
  const kind = kindOf(first);
  const resources = [...new Map(calls.map(({ resource }) => [`${resource.type} ${resource.id}`, resource])).values()];
  const conditions = [...resourceConditions(resources), ...argumentConditions(calls, action)];
  const scope = [
    `  principal == Agent::${quoteString(`${first.app}/${first.agent}`)},`,
    `  action == Action::${quoteString(action.name)},`,
    `  ${resourceScope(resources, action)}`,
    ")",
  ].join("\n");
  const clauses = chunks(conditions)
    .map((chunk) => `\nwhen {\n  ${chunk.join(" &&\n  ")}\n}`)
    .join("");
  const head = `// ${comment(first.agent)} of ${comment(first.app)}: ${comment(action.name)}, seen ${calls.length} time${plural(calls.length)}${historyOf(kind, calls)}`;
  const permit = `@id("suggested-${number}")\npermit (\n${scope}${clauses};\n`;
  switch (kind) {
    case "permit":
      return `${head}\n${permit}`;
    case "forbid":
      return `${head}\n${permit.trimEnd().replace(/^/gm, "// ")}\n`;
    case "challenge":
      return `${head}\n${permit}\n${approval(calls, number)}forbid (\n${scope}${clauses}\nunless { context.approved };\n`;
  }
}

function approval(calls: readonly ObservedCall[], number: number): string {
  const approvers = [...new Set(calls.flatMap((call) => call.approvers ?? []))].sort();
  const groups =
    approvers.length > 0
      ? `@approvers(${quoteString(approvers.join(","))})`
      : "// Add @approvers(…) as the rule above has them: without, any approver will do.";
  return `@id("suggested-${number}-approval")\n@outcome("challenge")\n${groups}\n`;
}

function historyOf(kind: Kind, calls: readonly ObservedCall[]): string {
  const names = [...new Set(calls.flatMap(({ rules = [] }) => rules))].sort();
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "";
  const by = names.slice(0, MAX_NAMED).map(comment).join(", ") + more;
  if (kind === "forbid") return `: forbidden by ${by}, so it is not permitted here`;
  if (kind === "challenge") return by === "" ? ": an approval was required" : `: an approval was required by ${by}`;
  const denied = calls.filter(({ effect, rules = [] }) => effect === "deny" && rules.length === 0).length;
  return denied === 0 ? "" : `, denied ${denied} time${plural(denied)} because nothing permitted it`;
}

/** Cedar's trees may not grow too deep, and every `&&` is a level. */
function chunks(conditions: readonly string[]): string[][] {
  const result: string[][] = [];
  for (let at = 0; at < conditions.length && result.length < MAX_CLAUSES; at += PER_CLAUSE) {
    result.push(conditions.slice(at, at + PER_CLAUSE));
  }
  return result;
}

function resourceScope(resources: readonly PolicyResource[], action: PolicyAction): string {
  const [only, ...more] = resources;
  const isNamed = only && more.length === 0 && (only.type !== "Tool" || only.id === action.name);
  if (isNamed) return `resource == ${only.type}::${quoteString(only.id)}`;
  const types = new Set(resources.map(({ type }) => type));
  return types.size === 1 ? `resource is ${[...types][0]}` : "resource";
}

function resourceConditions(resources: readonly PolicyResource[]): string[] {
  if (resources.length === 1 || resources.some(({ type }) => type === "Tool")) return [];
  if (resources.length <= MAX_RESOURCES) {
    const names = resources.map(({ type, id }) => `${type}::${quoteString(id)}`).sort();
    return [`[${names.join(", ")}].contains(resource)`];
  }
  const servers = [...new Set(resources.flatMap(({ server }) => server ?? []))].sort();
  const everyoneHasOne = resources.every(({ server }) => server !== undefined);
  return everyoneHasOne ? [`[${servers.map(quoteString).join(", ")}].contains(resource.server)`] : [];
}

function argumentConditions(calls: readonly ObservedCall[], action: PolicyAction): string[] {
  const seen = calls.map((call) => call.arguments);
  // Without the arguments of even one call, any condition on them might have denied it.
  if (!action.isTool || seen.some((args) => args === undefined)) return [];
  return constrainArguments(seen as JsonObject[], action.shape);
}

/** Names come from callers: a line break in one must not end the comment. */
function comment(text: string): string {
  return quoteString(text).slice(1, -1);
}

function plural(count: number): string {
  return count === 1 ? "" : "s";
}

/** Up to this many different values are listed. */
const MAX_LITERALS = 6;
const MAX_ELEMENTS = 20;
/** Longer texts are not put into a rule. */
const MAX_TEXT = 200;
/** Cedar refuses trees past 64 levels, and inside an object each condition is one. */
const MAX_INNER = 16;
const MAX_DEPTH = 2;
const MAX_UNDECLARED = 32;

function constrainArguments(seen: readonly JsonObject[], shape: RecordShape): string[] {
  return constrainRecord("context.arguments", seen, shape, 0);
}

function constrainRecord(holder: string, seen: readonly JsonObject[], shape: RecordShape, depth: number): string[] {
  if (depth > MAX_DEPTH) return [];
  const conditions: string[] = [];
  for (const [name, attr] of [...shape.attrs, ...undeclared(seen, shape)].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const present = seen.filter((args) => Object.hasOwn(args, name)).map((args) => args[name] as JsonValue);
    const has = hasExpression(holder, name);
    if (present.length === 0) {
      if (!attr.required) conditions.push(`!(${has})`);
      continue;
    }
    const read = getExpression(holder, name);
    const inner = constrainValue(read, present, attr.shape, depth + 1).slice(0, MAX_INNER);
    if (present.length < seen.length) {
      if (inner.length > 0) conditions.push(`(if ${has} then ${inner.join(" && ")} else true)`);
    } else {
      if (!attr.required) conditions.push(has);
      conditions.push(...inner);
    }
  }
  return conditions;
}

/** Names that the schema leaves room for, with the type that was seen under them. */
function undeclared(
  seen: readonly JsonObject[],
  shape: RecordShape,
): [string, { shape: ValueShape; required: boolean }][] {
  if (!shape.open) return [];
  const declared = [...shape.attrs.keys()];
  const names = new Set(seen.flatMap((args) => Object.keys(args)).filter((name) => !shape.attrs.has(name)));
  return [...names]
    .filter((name) => name.isWellFormed() && name !== "__proto__" && !declared.some((each) => isSlip(name, each)))
    .sort()
    .slice(0, MAX_UNDECLARED)
    .map((name) => {
      const values = seen.filter((args) => Object.hasOwn(args, name)).map((args) => args[name] as JsonValue);
      return [name, { shape: shapeSeen(values), required: false }];
    });
}

function shapeSeen(values: readonly JsonValue[]): ValueShape {
  const types = new Set(values.map((value) => (Number.isSafeInteger(value) ? "long" : typeof value)));
  const [type] = types;
  if (types.size === 1 && (type === "string" || type === "long")) return { kind: type };
  return types.size === 1 && type === "boolean" ? { kind: "bool" } : OPEN_SHAPE;
}

/** Nothing is said about a value that policy cannot read: a rule that did would deny the very call it was made from. */
function constrainValue(read: string, values: readonly JsonValue[], shape: ValueShape, depth: number): string[] {
  if (values.some((value) => !isReadable(value, shape))) return [];
  switch (shape.kind) {
    case "string":
      return values.every((value) => typeof value === "string") ? constrainText(read, values as string[]) : [];
    case "long":
      return values.every((value) => Number.isSafeInteger(value)) ? constrainNumber(read, values as number[]) : [];
    case "bool":
      return constrainBool(read, values);
    case "decimal":
      return values.every((value) => typeof value === "number") ? constrainDecimal(read, values as number[]) : [];
    case "set":
      return values.every(Array.isArray) ? constrainSet(read, values as JsonValue[][], shape.element) : [];
    case "record":
      return values.every(isObject) ? constrainRecord(read, values as JsonObject[], shape, depth) : [];
    case "open":
      return [];
  }
}

function isReadable(value: JsonValue, shape: ValueShape): boolean {
  const encoded = encode(value, shape, "");
  return !(encoded instanceof Unencodable) && !(encoded instanceof CedarRecord && encoded.flaw !== undefined);
}

function isObject(value: JsonValue): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function constrainText(read: string, values: readonly string[]): string[] {
  const distinct = [...new Set(values)].sort();
  if (distinct.length <= MAX_LITERALS && distinct.every((value) => value.length <= MAX_TEXT)) {
    return [literalTest(read, distinct.map(quoteString))];
  }
  const prefix = commonDirectory(distinct);
  if (prefix === "") return [];
  const below = `${read} like ${quotePattern([prefix, ""])}`;
  // `like "/srv/*"` also matches /srv/../etc; say so unless that is what was seen.
  return distinct.some((value) => value.includes("..")) ? [below] : [below, `!(${read} like "*..*")`];
}

/** The longest beginning that all share, cut behind its last slash. */
function commonDirectory(texts: readonly string[]): string {
  let prefix = texts[0] ?? "";
  for (const text of texts) while (!text.startsWith(prefix)) prefix = prefix.slice(0, -1);
  const directory = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  return directory.length <= MAX_TEXT && directory.isWellFormed() && !/^([a-z]+:)?\/*$/i.test(directory)
    ? directory
    : "";
}

function constrainNumber(read: string, values: readonly number[]): string[] {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  if (distinct.length <= MAX_LITERALS) return [literalTest(read, distinct.map(String))];
  return [`${read} >= ${distinct[0]}`, `${read} <= ${distinct.at(-1)}`];
}

function constrainDecimal(read: string, values: readonly number[]): string[] {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const text = (value: number | undefined): string => `decimal("${Decimal.fromNumber(value ?? 0)}")`;
  if (distinct.length === 1) return [`${read} == ${text(distinct[0])}`];
  return [`${read}.greaterThanOrEqual(${text(distinct[0])})`, `${read}.lessThanOrEqual(${text(distinct.at(-1))})`];
}

function constrainBool(read: string, values: readonly JsonValue[]): string[] {
  const [first] = values;
  if (typeof first !== "boolean" || values.some((value) => value !== first)) return [];
  return [first === true ? read : `!${read}`];
}

function constrainSet(read: string, values: readonly (readonly JsonValue[])[], element: ValueShape): string[] {
  const elements = [...new Set(values.flat())];
  if (elements.length === 0) return [`${read}.isEmpty()`];
  if (elements.length > MAX_ELEMENTS) return [];
  const literals = elements.map((value) => literal(value, element)).sort();
  if (literals.some((text) => text === undefined)) return [];
  return [`[${literals.join(", ")}].containsAll(${read})`];
}

function literal(value: JsonValue, shape: ValueShape): string | undefined {
  if (shape.kind === "string" && typeof value === "string" && value.length <= MAX_TEXT) return quoteString(value);
  if (shape.kind === "long" && Number.isSafeInteger(value)) return String(value);
  if (shape.kind === "bool" && typeof value === "boolean") return String(value);
  if (shape.kind === "decimal" && typeof value === "number") return `decimal("${Decimal.fromNumber(value)}")`;
  return undefined;
}
