// What is different between two definitions, for a person who has to say yes or no. Nothing in it can hide: what would
// not show is escaped, and the unchanged parts of a long text are left out, never the changed ones.

import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";
import type { PinnedKind } from "./definition.js";

export interface PinChange {
  /** Keys from the top of the definition; empty when it is new as a whole. */
  readonly path: readonly string[];
  /** Absent: it was not there before. */
  readonly before?: JsonValue;
  /** Absent: it is there no more. */
  readonly after?: JsonValue;
}

/** `before` is undefined for a definition that was never accepted. */
export function changesBetween(before: JsonValue | undefined, after: JsonValue): PinChange[] {
  const found: PinChange[] = [];
  compare(before, after, [], found);
  return found;
}

function compare(
  before: JsonValue | undefined,
  after: JsonValue | undefined,
  path: readonly string[],
  found: PinChange[],
): void {
  if (isJsonObject(before) && isJsonObject(after)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
    for (const key of keys) compare(own(before, key), own(after, key), [...path, key], found);
  } else if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    for (const [index, value] of before.entries()) compare(value, after[index], [...path, String(index)], found);
  } else if (JSON.stringify(before) !== JSON.stringify(after)) {
    found.push({ path, ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }) });
  }
}

function own(object: { [key: string]: JsonValue }, key: string): JsonValue | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** As lines: the path, then what was and what is. */
export function describeChanges(changes: readonly PinChange[]): string {
  return changes
    .map(({ path, before, after }) => {
      const [was, is] = differingParts(before, after);
      const lines = [path.length === 0 ? "(all of it)" : path.map(visible).join(" › ")];
      if (was !== undefined) lines.push(`- ${was}`);
      if (is !== undefined) lines.push(`+ ${is}`);
      return lines.join("\n");
    })
    .join("\n");
}

const CONTEXT = 40;

/** Of two long texts the part in which they differ, with a little of what stands around it. */
function differingParts(
  before: JsonValue | undefined,
  after: JsonValue | undefined,
): [string | undefined, string | undefined] {
  const was = before === undefined ? undefined : visible(JSON.stringify(before));
  const is = after === undefined ? undefined : visible(JSON.stringify(after));
  if (was === undefined || is === undefined) return [was, is];
  let start = 0;
  while (start < was.length && start < is.length && was[start] === is[start]) start++;
  let end = 0;
  const shorter = Math.min(was.length, is.length) - start;
  while (end < shorter && was[was.length - 1 - end] === is[is.length - 1 - end]) end++;
  const cut = (text: string): string => {
    const from = start > 2 * CONTEXT ? start - CONTEXT : 0;
    const to = end > 2 * CONTEXT ? text.length - end + CONTEXT : text.length;
    return `${from > 0 ? "… " : ""}${text.slice(from, to)}${to < text.length ? " …" : ""}`;
  };
  return [cut(was), cut(is)];
}

// What an operator accepts in advance, for servers that change now and then in ways that do no harm.

export interface StandingRule {
  /** Stands in the record as the name of who accepted. */
  readonly name: string;
  /** All kinds unless given. */
  readonly kinds?: readonly PinnedKind[];
  /** A pattern for names, in which `*` is any text. Every name unless given. */
  readonly names?: string;
  /** Parts that may change, as paths (`annotations.title`); what is below them may change with them. `*` is everything. */
  readonly fields?: readonly string[];
  /** Definitions that were not there before are accepted. */
  readonly additions?: boolean;
}

/** The first rule that allows all of the changes; a rule never allows a part of them. */
export function ruleFor(
  rules: readonly StandingRule[],
  kind: PinnedKind,
  name: string,
  changes: readonly PinChange[],
): StandingRule | undefined {
  return rules.find((rule) => {
    if (rule.kinds !== undefined && !rule.kinds.includes(kind)) return false;
    if (rule.names !== undefined && !matches(rule.names, name)) return false;
    return changes.every((change) => allows(rule, change));
  });
}

function allows({ fields = [], additions = false }: StandingRule, { path }: PinChange): boolean {
  if (path.length === 0) return additions;
  return fields.some((field) => field === "*" || field.split(".").every((key, index) => path[index] === key));
}

/** In time that grows with the text alone, whatever the pattern. */
function matches(pattern: string, text: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  if (rest.length === 0) return text === pattern;
  if (!text.startsWith(first)) return false;
  const last = rest.pop() as string;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
