// What would change, field by field, before anything does. Values that look like credentials are not shown.

import { isJsonObject, type JsonValue, pathText } from "../../protocol/index.js";
import { visible } from "../../telemetry/index.js";
import { hideCredentials } from "./hide.js";

export interface FieldChange {
  readonly path: readonly string[];
  /** Absent when the field is new, or when it goes. */
  readonly before?: JsonValue;
  readonly after?: JsonValue;
}

const MAX_CHANGES = 10_000;
const MAX_SHOWN_CHARS = 200;

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

export function changeText({ path, before, after }: FieldChange): string {
  const where = pathText(path);
  if (before === undefined) return `+ ${where}: ${shown(after, path)}`;
  if (after === undefined) return `- ${where}: ${shown(before, path)}`;
  return `~ ${where}: ${shown(before, path)} → ${shown(after, path)}`;
}

function shown(value: JsonValue | undefined, path: readonly string[]): string {
  const text = visible(JSON.stringify(hideCredentials(value ?? null, path)));
  return text.length <= MAX_SHOWN_CHARS ? text : `${text.slice(0, MAX_SHOWN_CHARS)}… (${text.length} characters)`;
}
