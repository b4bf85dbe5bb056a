// One more entry in a list of policy.yaml. Only the new lines are written; every other character stays as its author put
// it. The library's own edit of the parsed document says what must come out, and is used itself where ours differs.

import { isDeepStrictEqual } from "node:util";
import {
  type Document,
  isMap,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  type Scalar,
  stringify,
  type YAMLMap,
  type YAMLSeq,
} from "yaml";

export type ListName = "allowedRoots" | "writeRules" | "commands";

/** The text with `value` at the end of the list; the text must be YAML already. */
export function appendEntry(text: string, list: ListName, value: unknown): string {
  const wanted = parse(text);
  if (wanted.contents === null) wanted.contents = wanted.createNode({});
  const current = wanted.get(list);
  if (isSeq(current)) current.add(wanted.createNode(value));
  else wanted.set(list, wanted.createNode([value]));
  const spliced = splice(text, list, value);
  if (spliced !== undefined) {
    const result = parse(spliced);
    if (result.errors.length === 0 && isDeepStrictEqual(result.toJS(), wanted.toJS())) return spliced;
  }
  return wanted.toString({ lineWidth: 0 });
}

function parse(text: string): Document {
  return parseDocument(text, { uniqueKeys: true, merge: false });
}

function splice(text: string, list: ListName, value: unknown): string | undefined {
  const { contents } = parse(text);
  if (contents !== null && !isMap(contents)) return undefined;
  const pair = (contents?.items ?? []).find((item) => isScalar(item.key) && item.key.value === list) as
    | Pair<Scalar, unknown>
    | undefined;
  if (pair === undefined) return `${text}${separator(text)}${list}:\n${entry(value, 2)}`;
  const node = pair.value;
  if (isSeq(node) && node.flow === true) return intoFlow(text, node, value);
  if (isSeq(node)) return afterLast(text, node, value);
  return isScalar(node) && node.value !== null ? undefined : below(text, pair.key, value);
}

function separator(text: string): string {
  if (text === "") return "";
  return text.endsWith("\n") ? "\n" : "\n\n";
}

/** `- path: x` with what follows under it. */
function entry(value: unknown, indent: number): string {
  const margin = " ".repeat(indent);
  return stringify([value], { lineWidth: 0 }).replace(/^(?=.)/gm, margin);
}

function intoFlow(text: string, node: YAMLSeq, value: unknown): string | undefined {
  const [start, end] = node.range ?? [0, 0];
  if (text[end - 1] !== "]") return undefined;
  if (node.items.length === 0) {
    const line = endOfLine(text, end);
    return `${text.slice(0, start).trimEnd()}${text.slice(end, line)}${newline(text, line)}${entry(value, 2)}${text.slice(line)}`;
  }
  // JSON is YAML's flow style, spelled strictly.
  const before = text.slice(0, end - 1).trimEnd();
  const comma = before.endsWith(",") ? " " : ", ";
  return `${before}${comma}${JSON.stringify(value)}${text.slice(before.length)}`;
}

function afterLast(text: string, node: YAMLSeq, value: unknown): string | undefined {
  const start = node.range?.[0] ?? 0;
  const last = (node.items.at(-1) as { range?: readonly number[] } | undefined)?.range?.[1];
  if (last === undefined) return undefined;
  const indent = start - (text.lastIndexOf("\n", start - 1) + 1);
  const at = text[last - 1] === "\n" ? last : endOfLine(text, last);
  return `${text.slice(0, at)}${newline(text, at)}${entry(value, indent)}${text.slice(at)}`;
}

function below(text: string, key: Scalar, value: unknown): string {
  const at = endOfLine(text, key.range?.[1] ?? 0);
  return `${text.slice(0, at)}${newline(text, at)}${entry(value, 2)}${text.slice(at)}`;
}

/** Just after the line's end, so that a remark behind an entry stays with it. */
function endOfLine(text: string, from: number): number {
  const at = text.indexOf("\n", from);
  return at < 0 ? text.length : at + 1;
}

function newline(text: string, at: number): string {
  return at === 0 || text[at - 1] === "\n" ? "" : "\n";
}

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
