// What is different between two definitions, for a person who has to say yes or no. Nothing in it can hide: what would
// not show is escaped, and the unchanged parts of a long text are left out, never the changed ones.

import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";

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
      const [was, is] = around(before, after);
      const lines = [path.length === 0 ? "(all of it)" : path.map(visible).join(" › ")];
      if (was !== undefined) lines.push(`- ${was}`);
      if (is !== undefined) lines.push(`+ ${is}`);
      return lines.join("\n");
    })
    .join("\n");
}

const CONTEXT = 40;

/** Of two long texts the part in which they differ, with a little of what stands around it. */
function around(before: JsonValue | undefined, after: JsonValue | undefined): [string | undefined, string | undefined] {
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
