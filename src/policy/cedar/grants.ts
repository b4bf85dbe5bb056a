// A policy that permits exactly what a list of grants says, written by a machine from a proof. A JSON Schema for arguments
// becomes Cedar conditions; the arguments have passed the tool's own schema already, so only what narrows further has to
// be said. What Cedar cannot say is undefined, never left out: the caller decides what that means.

import type { JsonValue } from "../../mcp/index.js";
import { PolicyCatalog } from "./catalog.js";
import { getExpression, hasExpression, literalTest, quotePattern, quoteString } from "./language/scan.js";
import type { RecordShape, ValueShape } from "./shape.js";
import type { ToolSummary } from "./types.js";
import { Decimal } from "./value/extensions.js";

/** An agent may call a tool, with arguments that fit the schema; any arguments that the tool takes when absent. */
export interface PolicyGrant {
  readonly app: string;
  readonly agent: string;
  readonly tool: string;
  readonly arguments?: unknown;
}

export interface GrantPolicyOptions {
  /** Lines that say where the policy comes from. */
  readonly header?: readonly string[];
  /** Another check covers the arguments too: a condition that Cedar cannot express is then left out. */
  readonly argumentsElsewhere?: boolean;
}

export interface GrantPolicy {
  readonly text: string;
  /** Grants whose arguments Cedar cannot express. Without another check they are not permitted at all. */
  readonly unsaid: readonly PolicyGrant[];
}

const PER_CLAUSE = 16;
const MAX_ACTIONS = 200;
const MAX_AGENTS = 200;

export function grantPolicy(
  grants: readonly PolicyGrant[],
  tools: readonly ToolSummary[],
  options: GrantPolicyOptions = {},
): GrantPolicy {
  const catalog = new PolicyCatalog(tools);
  const schemas = new Map(tools.map((tool) => [tool.name, tool.inputSchema]));
  const unsaid: PolicyGrant[] = [];
  const free = new Map<string, PolicyGrant[]>();
  const rules: string[] = [];
  for (const grant of grants) {
    const action = catalog.actions.get(grant.tool);
    const said =
      grant.arguments === undefined || action === undefined
        ? []
        : argumentConditions(grant.arguments, action.shape, schemas.get(grant.tool));
    if (said === undefined) unsaid.push(grant);
    if (said === undefined && options.argumentsElsewhere !== true) {
      rules.push(`// not permitted: Cedar cannot say which arguments ${comment(grant)}`);
    } else if (said === undefined || said.length === 0) {
      const key = `${grant.app}/${grant.agent}`;
      free.set(key, [...(free.get(key) ?? []), grant]);
    } else if (!said.includes("false")) rules.push(rule(ruleId(rules.length, grant.agent, grant.tool), grant, said));
  }
  for (const { agents, tools: held } of alike(free)) {
    for (let at = 0; at < held.length; at += MAX_ACTIONS) {
      rules.push(plainRule(ruleId(rules.length, agents[0] ?? ""), agents, held.slice(at, at + MAX_ACTIONS)));
    }
  }
  const header = (options.header ?? []).map((line) => `// ${quoteString(line).slice(1, -1)}`);
  // Nothing granted is still a policy: one that permits nothing.
  const body = rules.length === 0 ? ['@id("lattice.nothing")\nforbid (principal, action, resource);'] : rules;
  const parts = header.length === 0 ? body : [header.join("\n"), ...body];
  return { text: `${parts.join("\n\n")}\n`, unsaid };
}

/** Agents that hold the same tools share a rule: checking a policy takes time for every rule and tool. */
function alike(free: ReadonlyMap<string, readonly PolicyGrant[]>): { agents: string[]; tools: readonly string[] }[] {
  const all: { agents: string[]; tools: readonly string[] }[] = [];
  const open = new Map<string, { agents: string[]; tools: readonly string[] }>();
  for (const [agent, list] of free) {
    const held = list.map(({ tool }) => tool);
    const key = JSON.stringify(held);
    let group = open.get(key);
    if (group === undefined || group.agents.length >= MAX_AGENTS) {
      group = { agents: [], tools: held };
      open.set(key, group);
      all.push(group);
    }
    group.agents.push(agent);
  }
  return all;
}

function plainRule(id: string, agents: readonly string[], tools: readonly string[]): string {
  const names = tools.map((tool) => `Action::${quoteString(tool)}`);
  const callers = agents.map((agent) => `Agent::${quoteString(agent)}`);
  const action = names.length === 1 ? `action == ${names[0]}` : `action in [\n    ${names.join(",\n    ")}\n  ]`;
  const principal = callers.length === 1 ? `principal == ${callers[0]}` : "principal";
  const which = callers.length === 1 ? "" : `\nwhen { [${callers.join(", ")}].contains(principal) }`;
  return `@id(${id})\npermit (\n  ${principal},\n  ${action},\n  resource\n)${which};`;
}

/** A number makes it unique, the names make it readable. */
function ruleId(number: number, ...names: readonly string[]): string {
  const readable = names.map((name) => name.replaceAll(/[^\w./-]/g, "_").slice(0, 48)).join(".");
  return quoteString(`lattice.${number + 1}.${readable}`);
}

function rule(id: string, { app, agent, tool }: PolicyGrant, conditions: readonly string[]): string {
  const clauses: string[] = [];
  for (let at = 0; at < conditions.length; at += PER_CLAUSE) {
    clauses.push(`when {\n  ${conditions.slice(at, at + PER_CLAUSE).join(" &&\n  ")}\n}`);
  }
  return [
    `@id(${id})`,
    "permit (",
    `  principal == Agent::${quoteString(`${app}/${agent}`)},`,
    `  action == Action::${quoteString(tool)},`,
    "  resource",
    ")",
    `${clauses.join("\n")};`,
  ].join("\n");
}

function comment({ agent, tool }: PolicyGrant): string {
  return `${quoteString(agent).slice(1, -1)} may use with ${quoteString(tool).slice(1, -1)}`;
}

type Schema = Readonly<Record<string, unknown>>;

/** Conditions that must all hold; undefined when Cedar cannot say it. */
type Conditions = readonly string[] | undefined;

const NEVER: readonly string[] = ["false"];
/** Cedar refuses trees past 64 levels, and every term of a group is one. */
const MAX_GROUP = 24;
const MAX_DEPTH = 4;
const MAX_LITERALS = 500;

/** Keywords that reject nothing. */
const ANNOTATIONS = new Set([
  "$schema",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);

/** `own` is the schema that the tool itself has, and `shape` what Cedar sees of it. */
export function argumentConditions(schema: unknown, shape: RecordShape, own: unknown): Conditions {
  return conditions(schema, { read: "context.arguments", shape, own, depth: 0 });
}

interface Place {
  readonly read: string;
  readonly shape: ValueShape;
  readonly own: unknown;
  readonly depth: number;
}

function conditions(schema: unknown, at: Place): Conditions {
  if (schema === true) return [];
  if (schema === false) return NEVER;
  if (!isSchema(schema) || at.depth > MAX_DEPTH) return undefined;
  const all: string[] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    if (ANNOTATIONS.has(keyword)) continue;
    const said = keywordConditions(keyword, value, schema, at);
    if (said === undefined) return undefined;
    all.push(...said);
  }
  return all.includes("false") ? NEVER : all;
}

function keywordConditions(keyword: string, value: unknown, schema: Schema, at: Place): Conditions {
  switch (keyword) {
    case "type":
      return ofType([value].flat(), at) ? [] : undefined;
    case "const":
      return among([value], at);
    case "enum":
      return Array.isArray(value) ? among(value, at) : undefined;
    case "allOf":
      return conjunction(value, at);
    case "anyOf":
      return disjunction(value, at);
    case "not":
      return negation(value, at);
    case "required":
      return at.shape.kind === "record" ? required(value, at, at.shape) : undefined;
    case "properties":
      return at.shape.kind === "record" ? properties(value, at, at.shape) : undefined;
    case "additionalProperties":
      return at.shape.kind === "record" ? closed(value, schema, at, at.shape) : undefined;
    case "minimum":
      return bound(value, at, ">=", "greaterThanOrEqual");
    case "maximum":
      return bound(value, at, "<=", "lessThanOrEqual");
    case "exclusiveMinimum":
      return bound(value, at, ">", "greaterThan");
    case "exclusiveMaximum":
      return bound(value, at, "<", "lessThan");
    case "pattern":
      return at.shape.kind === "string" ? beginning(value, at.read) : undefined;
    case "minLength":
      if (at.shape.kind !== "string" || typeof value !== "number" || value > 1) return undefined;
      return value === 1 ? [`${at.read} != ""`] : [];
    case "items":
      return at.shape.kind === "set" ? elements(value, at.read, at.shape.element) : undefined;
    default:
      return undefined;
  }
}

const KINDS: Readonly<Record<string, readonly ValueShape["kind"][]>> = {
  string: ["string"],
  integer: ["long"],
  number: ["long", "decimal"],
  boolean: ["bool"],
  array: ["set"],
  object: ["record"],
};

/** Whether the tool's own schema says so already. Where it also takes null nothing is said: Cedar does not see null. */
function ofType(types: readonly unknown[], { shape, own, depth }: Place): boolean {
  const isTaken = types.some((type) => KINDS[String(type)]?.includes(shape.kind) === true);
  return isTaken && (depth === 0 || types.includes("null") || (isSchema(own) && typeof own.type === "string"));
}

function literal(value: unknown, shape: ValueShape): string | undefined {
  if (shape.kind === "string" && typeof value === "string" && value.isWellFormed()) return quoteString(value);
  if (shape.kind === "long" && Number.isSafeInteger(value)) return String(value);
  if (shape.kind === "bool" && typeof value === "boolean") return String(value);
  if (shape.kind !== "decimal" || typeof value !== "number") return undefined;
  const decimal = Decimal.fromNumber(value);
  return decimal === undefined ? undefined : `decimal("${decimal}")`;
}

/** Values of another type than the tool takes never come, so they need not be listed. */
function literals(values: readonly unknown[], shape: ValueShape): string[] | undefined {
  if (!["string", "long", "bool", "decimal"].includes(shape.kind) || values.length > MAX_LITERALS) return undefined;
  return [...new Set(values.flatMap((value) => literal(value, shape) ?? []))];
}

function among(values: readonly unknown[], { read, shape }: Place): Conditions {
  const list = literals(values, shape);
  if (list === undefined) return undefined;
  if (list.length === 0) return NEVER;
  return [literalTest(read, list)];
}

function elements(items: unknown, read: string, element: ValueShape): Conditions {
  if (items === true || (isSchema(items) && Object.keys(items).length === 0)) return [];
  const values = isSchema(items)
    ? Array.isArray(items.enum)
      ? items.enum
      : "const" in items
        ? [items.const]
        : []
    : [];
  const others = isSchema(items) ? Object.keys(items).filter((key) => !["enum", "const", "type"].includes(key)) : ["?"];
  const list = others.length > 0 ? undefined : literals(values, element);
  return list === undefined || list.length === 0 ? undefined : [`[${list.join(", ")}].containsAll(${read})`];
}

function grouped(parts: readonly string[], operator: "&&" | "||"): string | undefined {
  if (parts.length > MAX_GROUP) return undefined;
  return parts.length === 1 ? parts[0] : `(${parts.join(` ${operator} `)})`;
}

function conjunction(value: unknown, at: Place): Conditions {
  if (!Array.isArray(value)) return undefined;
  const all: string[] = [];
  for (const part of value) {
    const said = conditions(part, at);
    if (said === undefined) return undefined;
    all.push(...said);
  }
  return all;
}

function disjunction(value: unknown, at: Place): Conditions {
  if (!Array.isArray(value)) return undefined;
  const any: string[] = [];
  for (const part of value) {
    const said = conditions(part, { ...at, depth: at.depth + 1 });
    if (said === undefined) return undefined;
    if (said.length === 0) return [];
    const text = said === NEVER ? undefined : grouped(said, "&&");
    if (text !== undefined) any.push(text);
    else if (said !== NEVER) return undefined;
  }
  const text = any.length === 0 ? "false" : grouped(any, "||");
  return text === undefined ? undefined : [text];
}

/** Only where the inside is said exactly: single values. */
function negation(value: unknown, at: Place): Conditions {
  const inside = isSchema(value) && Object.keys(value).every((key) => key === "const" || key === "enum");
  const values = inside ? [value.enum ?? [], "const" in value ? [value.const] : []].flat(2) : [];
  // A value that cannot be written down cannot be forbidden.
  if (values.length === 0 || values.some((each) => literal(each, at.shape) === undefined)) return undefined;
  const said = conditions(value, at);
  return said === undefined || said === NEVER ? undefined : [`!(${said.join(" && ")})`];
}

function required(names: unknown, at: Place, shape: RecordShape): Conditions {
  if (!Array.isArray(names) || names.some((name) => !shape.attrs.has(name))) return undefined;
  return (names as string[])
    .filter((name) => shape.attrs.get(name)?.required !== true)
    .map((name) => hasExpression(at.read, name));
}

function properties(value: unknown, at: Place, shape: RecordShape): Conditions {
  if (!isSchema(value)) return undefined;
  const all: string[] = [];
  const theirs = isSchema(at.own) && isSchema(at.own.properties) ? at.own.properties : {};
  for (const [name, schema] of Object.entries(value)) {
    if (schema === true) continue;
    const attr = shape.attrs.get(name);
    if (attr === undefined) {
      // A name that the tool does not take cannot come when the tool says so, and cannot be spoken of when it does not.
      if (isClosed(at.own) && !Object.hasOwn(theirs, name)) continue;
      return undefined;
    }
    const read = getExpression(at.read, name);
    const own = Object.hasOwn(theirs, name) ? theirs[name] : undefined;
    const said = conditions(schema, { read, shape: attr.shape, own, depth: at.depth + 1 });
    if (said === undefined) return undefined;
    if (attr.required) all.push(...said);
    else if (said.length > 0) {
      const text = grouped(said, "&&");
      if (text === undefined) return undefined;
      all.push(
        said === NEVER
          ? `!(${hasExpression(at.read, name)})`
          : `(if ${hasExpression(at.read, name)} then ${text} else true)`,
      );
    }
  }
  return all;
}

function isClosed(own: unknown): boolean {
  return isSchema(own) && own.additionalProperties === false && own.patternProperties === undefined;
}

function closed(value: unknown, schema: Schema, at: Place, shape: RecordShape): Conditions {
  if (value === true) return [];
  if (value !== false || schema.patternProperties !== undefined || !isClosed(at.own)) return undefined;
  const named = isSchema(schema.properties) ? schema.properties : {};
  const taken = isSchema(at.own) && isSchema(at.own.properties) ? Object.keys(at.own.properties) : [];
  if (taken.some((name) => !shape.attrs.has(name))) return undefined;
  const gone = [...shape.attrs].filter(([name]) => !Object.hasOwn(named, name));
  return gone.some(([, attr]) => attr.required) ? NEVER : gone.map(([name]) => `!(${hasExpression(at.read, name)})`);
}

function bound(value: unknown, { read, shape }: Place, operator: string, method: string): Conditions {
  if (typeof value !== "number") return undefined;
  if (shape.kind === "long") {
    const whole = Number.isSafeInteger(value) ? String(value) : undefined;
    return whole === undefined ? undefined : [`${read} ${operator} ${whole}`];
  }
  const text = shape.kind === "decimal" ? literal(value, shape) : undefined;
  return text === undefined ? undefined : [`${read}.${method}(${text})`];
}

/** `^text` and `^text$` where the text is meant literally; other patterns Cedar has no words for. */
function beginning(pattern: unknown, read: string): Conditions {
  const match = /^\^((?:[^\\^$.*+?()[\]{}|]|\\[\\^$.*+?()[\]{}|/-])*)(\$?)$/u.exec(String(pattern));
  if (match === null) return undefined;
  const text = (match[1] ?? "").replaceAll(/\\(.)/gu, "$1");
  return [match[2] === "$" ? `${read} == ${quoteString(text)}` : `${read} like ${quotePattern([text, ""])}`];
}

function isSchema(value: unknown): value is Schema & Readonly<Record<string, JsonValue>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
