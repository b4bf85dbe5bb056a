// The narrowest policy that would have permitted what was seen, written for a person to read and change:
// one rule for each agent and tool, with what its arguments were.

import type { JsonObject } from "../../protocol/index.js";
import { type Action, Catalog } from "./catalog.js";
import { refuseArguments } from "./encode.js";
import { quote } from "./language/scan.js";
import { constrainArguments } from "./suggest-arguments.js";
import type { PolicyResource, ToolSummary } from "./types.js";

export interface ObservedCall {
  readonly app: string;
  readonly agent: string;
  readonly action: string;
  readonly resource: PolicyResource;
  /** Left out where the operator does not keep arguments. */
  readonly arguments?: JsonObject;
}

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

export function suggestPolicy(calls: Iterable<ObservedCall>, tools: readonly ToolSummary[]): string {
  const catalog = new Catalog(tools);
  const groups = new Map<string, ObservedCall[]>();
  const skipped = new Map<string, number>();
  for (const call of calls) {
    const why = refuse(call, catalog);
    const key = JSON.stringify([call.app, call.agent, call.action]);
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
  return `${[...HEADER, ...notes, "", ...rules].join("\n")}\n`;
}

/** Calls that no policy can permit. */
function refuse(call: ObservedCall, catalog: Catalog): string | undefined {
  if (!catalog.actions.has(call.action)) return `there is no tool or method ${call.action}`;
  if (call.app === "" || call.agent === "" || call.app.includes("/"))
    return "the application or agent has no usable name";
  if (![call.app, call.agent, call.resource.id].every((text) => text.isWellFormed()))
    return "a name is not well-formed";
  return call.arguments === undefined ? undefined : refuseArguments(call.arguments);
}

function rule(calls: readonly ObservedCall[], action: Action | undefined, number: number): string {
  const [first] = calls;
  if (!first || !action) return "";
  const { app, agent } = first;
  const resources = [...new Map(calls.map(({ resource }) => [`${resource.type} ${resource.id}`, resource])).values()];
  const conditions = [...resourceConditions(resources), ...argumentConditions(calls, action)];
  const head = [
    `// ${comment(agent)} of ${comment(app)}: ${comment(action.name)}, seen ${calls.length} time${plural(calls.length)}`,
    `@id("suggested-${number}")`,
    "permit (",
    `  principal == Agent::${quote(`${app}/${agent}`)},`,
    `  action == Action::${quote(action.name)},`,
    `  ${resourceScope(resources, action)}`,
    ")",
  ];
  const clauses = chunks(conditions).map((chunk) => `\nwhen {\n  ${chunk.join(" &&\n  ")}\n}`);
  return `${head.join("\n")}${clauses.join("")};\n`;
}

/** Cedar's trees may not grow too deep, and every `&&` is a level. */
function chunks(conditions: readonly string[]): string[][] {
  const result: string[][] = [];
  for (let at = 0; at < conditions.length && result.length < MAX_CLAUSES; at += PER_CLAUSE) {
    result.push(conditions.slice(at, at + PER_CLAUSE));
  }
  return result;
}

function resourceScope(resources: readonly PolicyResource[], action: Action): string {
  const [only, ...more] = resources;
  const isNamed = only && more.length === 0 && (only.type !== "Tool" || only.id === action.name);
  if (isNamed) return `resource == ${only.type}::${quote(only.id)}`;
  const types = new Set(resources.map(({ type }) => type));
  return types.size === 1 ? `resource is ${[...types][0]}` : "resource";
}

function resourceConditions(resources: readonly PolicyResource[]): string[] {
  if (resources.length === 1 || resources.some(({ type }) => type === "Tool")) return [];
  if (resources.length <= MAX_RESOURCES) {
    const names = resources.map(({ type, id }) => `${type}::${quote(id)}`).sort();
    return [`[${names.join(", ")}].contains(resource)`];
  }
  const servers = [...new Set(resources.flatMap(({ server }) => server ?? []))].sort();
  const everyoneHasOne = resources.every(({ server }) => server !== undefined);
  return everyoneHasOne ? [`[${servers.map(quote).join(", ")}].contains(resource.server)`] : [];
}

function argumentConditions(calls: readonly ObservedCall[], action: Action): string[] {
  const seen = calls.map((call) => call.arguments);
  // Without the arguments of even one call, any condition on them might have denied it.
  if (!action.isTool || seen.some((args) => args === undefined)) return [];
  return constrainArguments(seen as JsonObject[], action.shape);
}

/** Names come from callers: a line break in one must not end the comment. */
function comment(text: string): string {
  return quote(text).slice(1, -1);
}

function plural(count: number): string {
  return count === 1 ? "" : "s";
}
