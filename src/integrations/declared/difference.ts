// What would change, field by field, before anything does. Values that look like credentials are not shown.

import { lineDiff } from "../../lib/line-diff.js";
import { paint } from "../../lib/print.js";
import { isJsonObject, type JsonValue, pathText } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";
import { hideCredentials } from "../../storage/index.js";

export interface FieldChange {
  readonly path: readonly string[];
  /** Absent when the field is new, or when it goes. */
  readonly before?: JsonValue;
  readonly after?: JsonValue;
}

const MAX_CHANGES = 10_000;
const MAX_SHOWN_CHARS = 200;
const MAX_LINES = 2_000;

export function differences(before: JsonValue, after: JsonValue): FieldChange[] {
  const found: FieldChange[] = [];
  compare(before, after, [], found);
  return found.slice(0, MAX_CHANGES);
}

function compare(before: JsonValue, after: JsonValue, path: readonly string[], found: FieldChange[]): void {
  if (!isJsonObject(before) || !isJsonObject(after)) {
    if (JSON.stringify(before) !== JSON.stringify(after)) found.push({ path, before, after });
    return;
  }
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  for (const name of [...names].sort()) {
    const [old, fresh] = [before[name], after[name]];
    const at = [...path, name];
    if (old === undefined && fresh !== undefined) found.push({ path: at, after: fresh });
    else if (old !== undefined && fresh === undefined) found.push({ path: at, before: old });
    else if (old !== undefined && fresh !== undefined) compare(old, fresh, at, found);
  }
}

/** The text of a policy as a line diff, below the line that names it; other values on one line. */
export function changeText({ path, before, after }: FieldChange): string {
  const where = pathText(path);
  if (path.length === 2 && path[0] === "policies") {
    const sign = before === undefined ? "+" : after === undefined ? "-" : "~";
    const lines = lineDiff(String(before ?? ""), String(after ?? ""));
    const more = lines.length > MAX_LINES ? [`… ${lines.length - MAX_LINES} more lines`] : [];
    const shownLines = [...lines.slice(0, MAX_LINES).map(painted), ...more];
    return [`${sign} ${where}:`, ...shownLines.map((line) => `    ${line}`)].join("\n");
  }
  if (path.length === 1 && path[0] === "policies") {
    return policyChanges(before, after).map(changeText).join("\n  ");
  }
  if (before === undefined) return `+ ${where}: ${shown(after, path)}`;
  if (after === undefined) return `- ${where}: ${shown(before, path)}`;
  return `~ ${where}: ${shown(before, path)} → ${shown(after, path)}`;
}

/** When all policies are new or go, each is a change of its own. */
function policyChanges(before: JsonValue | undefined, after: JsonValue | undefined): FieldChange[] {
  const of = (value: JsonValue | undefined): JsonValue => (isJsonObject(value) ? value : {});
  return differences(of(before), of(after)).map((change) => ({ ...change, path: ["policies", ...change.path] }));
}

function painted(line: string): string {
  const text = visible(line);
  return line.startsWith("+") ? paint.green(text) : line.startsWith("-") ? paint.red(text) : text;
}

function shown(value: JsonValue | undefined, path: readonly string[]): string {
  const text = visible(JSON.stringify(hideCredentials(value ?? null, path)));
  return text.length <= MAX_SHOWN_CHARS ? text : `${text.slice(0, MAX_SHOWN_CHARS)}… (${text.length} characters)`;
}
