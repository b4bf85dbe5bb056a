// What would change, field by field, before anything does. Values that look like credentials are not shown.

import { CliError, EXIT } from "../../lib/exit.js";
import { lineDiff } from "../../lib/line-diff.js";
import { paint } from "../../lib/print.js";
import { isJsonObject, type JsonObject, type JsonValue, pathText } from "../../mcp/index.js";
import { hideCredentials } from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";

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

const MAX_DEPTH = 32;

export function fieldPath(text: string): string[] {
  const parts = text.startsWith("/")
    ? text
        .slice(1)
        .split("/")
        .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    : text.split(".");
  if (parts.includes("") || parts.length > MAX_DEPTH) {
    throw new CliError(`invalid path \`${text}\``, EXIT.usage, "write servers.s3.command, or /routes/community.aws.s3");
  }
  return parts;
}

/** JSON where it is JSON, otherwise the text itself. */
export function valueOf(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return text;
  }
}

/** A copy with that field set, or without it. */
export function withField(document: JsonObject, path: readonly string[], value: JsonValue | undefined): JsonObject {
  const [name = "", ...rest] = path;
  // Own properties only, defined and not assigned: a field called `__proto__` is a field.
  const copy: [string, JsonValue][] = Object.entries(document)
    .filter(([key, each]) => key !== name && each !== undefined)
    .map(([key, each]) => [key, each as JsonValue]);
  if (rest.length > 0) {
    const inner = Object.hasOwn(document, name) ? document[name] : undefined;
    if (inner !== undefined && !isJsonObject(inner)) {
      throw new CliError(`\`${name}\` holds no fields; set it as a whole`, EXIT.usage);
    }
    if (inner !== undefined || value !== undefined) copy.push([name, withField(inner ?? {}, rest, value)]);
  } else if (value !== undefined) copy.push([name, value]);
  return Object.fromEntries(copy);
}
