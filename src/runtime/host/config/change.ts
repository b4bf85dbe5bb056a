// Other values in an entry of a list in policy.yaml. Only the values are written (or their lines added); every other
// character stays. As with a new entry, the library's own edit of the parsed document says what must come out.

import { isDeepStrictEqual } from "node:util";
import {
  type Document,
  isMap,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  stringify,
  type YAMLMap,
} from "yaml";
import type { ListName } from "./append.js";

export type PolicyFields = Readonly<Record<string, string | number | boolean>>;

/** INVARIANT: the text is YAML and has such an entry. */
export function changeEntry(text: string, list: ListName, index: number, fields: PolicyFields): string {
  const wanted = parse(text);
  for (const [name, value] of Object.entries(fields)) wanted.setIn([list, index, name], value);
  let spliced: string | undefined = text;
  for (const [name, value] of Object.entries(fields))
    spliced = spliced && spliceField(spliced, list, index, name, value);
  if (spliced !== undefined) {
    const result = parse(spliced);
    if (result.errors.length === 0 && isDeepStrictEqual(result.toJS(), wanted.toJS())) return spliced;
  }
  return wanted.toString({ lineWidth: 0 });
}

function parse(text: string): Document {
  return parseDocument(text, { uniqueKeys: true, merge: false });
}

function spliceField(
  text: string,
  list: ListName,
  index: number,
  name: string,
  value: PolicyFields[string],
): string | undefined {
  const entries = parse(text).get(list);
  const entry = isSeq(entries) ? entries.items[index] : undefined;
  if (!isMap(entry)) return undefined;
  const old = entry.items.find((pair) => isScalar(pair.key) && pair.key.value === name) as Pair<Node, Node> | undefined;
  if (old === undefined) return addField(text, entry, `${name}: ${written(value)}`);
  const [start, end] = old.value?.range ?? [];
  if (!isScalar(old.value) || start === undefined || end === undefined || start === end) return undefined;
  // What means the same stays as its author spelled it.
  if (old.value.value === value) return text;
  return text.slice(0, start) + written(value) + text.slice(end);
}

function written(value: PolicyFields[string]): string {
  return stringify(value, { lineWidth: 0 }).trimEnd();
}

function addField(text: string, entry: YAMLMap, field: string): string | undefined {
  const last = entry.items.at(-1) as Pair<Node, Node | null> | undefined;
  const end = (last?.value ?? last?.key)?.range?.[1];
  const start = entry.range?.[0];
  if (end === undefined || start === undefined) return undefined;
  if (entry.flow === true) return `${text.slice(0, end)}, ${field}${text.slice(end)}`;
  const margin = " ".repeat(start - (text.lastIndexOf("\n", start - 1) + 1));
  const line = text.indexOf("\n", end);
  const at = line < 0 ? text.length : line;
  return `${text.slice(0, at)}\n${margin}${field}${text.slice(at)}`;
}
