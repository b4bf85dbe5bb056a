// Servers put into and taken out of a client's configuration by the smallest change of its text: comments, order and
// layout stay. Every edit is checked: the new text must mean the old plus exactly what was asked for.

import { isDeepStrictEqual } from "node:util";
import { createScanner, findNodeAtLocation, type Node, parseTree } from "jsonc-parser";
import { stringify } from "smol-toml";
import { CliError } from "../../lib/exit.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { BYTE_ORDER_MARK, parseConfig } from "./read.js";

export interface ConfigEdit {
  /** Keys that lead to the server. */
  readonly path: readonly string[];
  /** Undefined takes it out. */
  readonly value: JsonObject | undefined;
}

export function edited(marked: string, file: string, isToml: boolean, edits: readonly ConfigEdit[]): string {
  const mark = marked.startsWith(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK : "";
  const text = marked.slice(mark.length);
  const expected = structuredClone(parseConfig(text, file, isToml));
  let out = text.trim() === "" && !isToml ? "{}\n" : text;
  for (const edit of edits) {
    out = isToml ? tomlEdit(out, edit) : jsonEdit(out, edit);
    put(expected, edit);
  }
  if (isDeepStrictEqual(plain(parseConfig(out, file, isToml)), plain(expected))) return mark + out;
  throw new CliError(
    `${file} is written in a way that cannot be edited safely; nothing was changed`,
    undefined,
    isToml ? "write each server as a table of its own: [mcp_servers.NAME]" : "edit it by hand",
  );
}

const MAX_REPEATED = 100;

function jsonEdit(text: string, { path, value }: ConfigEdit): string {
  if (value !== undefined) return withProperty(text, path, value);
  // It may be there more than once; the one before would count again.
  let out = text;
  for (let i = 0, before = ""; i < MAX_REPEATED && out !== before; i++) {
    before = out;
    out = withoutProperty(out, path);
  }
  return out;
}

function tomlEdit(text: string, { path, value }: ConfigEdit): string {
  return value === undefined ? withoutTable(text, path) : withTable(withoutTable(text, path), path, value);
}

function put(root: JsonObject, { path, value }: ConfigEdit): void {
  let at = root;
  for (const key of path.slice(0, -1)) {
    if (!isJsonObject(at[key])) {
      if (value === undefined) return;
      at[key] = {};
    }
    at = at[key] as JsonObject;
  }
  const last = path.at(-1) as string;
  if (value === undefined) delete at[last];
  else at[last] = value;
}

/** An empty group of servers and none are the same; prototypes and order do not count. */
function plain(value: JsonObject): unknown {
  const copy = JSON.parse(JSON.stringify(value)) as JsonObject;
  for (const key of ["mcpServers", "servers", "mcp_servers", "context_servers"]) {
    const group = copy[key];
    if (isJsonObject(group) && Object.keys(group).length === 0) delete copy[key];
  }
  return copy;
}

/** Replaces the one that is there, or comes first among its like. */
function withProperty(text: string, path: readonly string[], value: JsonValue): string {
  const root = parseTree(text) as Node;
  const there = findNodeAtLocation(root, [...path]);
  if (there) {
    const indented = written(value, text, indentAt(text, (there.parent as Node).offset));
    return splice(text, there.offset, there.offset + there.length, indented);
  }
  const [name = "", ...rest] = path;
  const group = path.length > 1 ? findNodeAtLocation(root, [name]) : undefined;
  if (group) return inserted(text, findNodeAtLocation(root, path.slice(0, -1)) ?? group, path.at(-1) as string, value);
  const whole = rest.reduceRight<JsonValue>((inner, key) => ({ [key]: inner }) as JsonObject, value);
  return inserted(text, root, name, whole);
}

function withoutProperty(text: string, path: readonly string[]): string {
  const property = findNodeAtLocation(parseTree(text) as Node, [...path])?.parent;
  if (property?.type !== "property" || !property.parent?.children) return text;
  const siblings = property.parent.children;
  const previous = siblings[siblings.indexOf(property) - 1];
  let start = property.offset;
  let end = property.offset + property.length;
  const comma = commaAfter(text, end);
  if (comma !== undefined) end = comma + 1;
  const lineStart = text.lastIndexOf("\n", start - 1) + 1;
  const rest = /^[ \t]*(?:\/\/[^\r\n]*)?\r?\n/.exec(text.slice(end))?.[0];
  if (rest !== undefined && text.slice(lineStart, start).trim() === "") {
    // Alone on its lines: they go, with the remark at their end.
    start = lineStart;
    end += rest.length;
  } else if (comma !== undefined) {
    end += /^[ \t]*/.exec(text.slice(end))?.[0].length ?? 0;
  }
  const out = splice(text, start, end, "");
  if (comma !== undefined || !previous) return out;
  // The last one is gone, so the one before needs no comma any more.
  const before = commaAfter(text, previous.offset + previous.length);
  return before === undefined ? out : splice(out, before, before + 1, "");
}

/** Names that are there more than once on the way to an object and in it: the last of them counts, as it does for clients. */
export function repeated(text: string, path: readonly string[]): string[] {
  const found: string[] = [];
  let group: Node | undefined = parseTree(text.startsWith("\uFEFF") ? text.slice(1) : text);
  for (let depth = 0; depth <= path.length && group?.type === "object"; depth++) {
    const byName = new Map<string, Node[]>();
    for (const property of group.children ?? []) {
      const name = String(property.children?.[0]?.value);
      byName.set(name, [...(byName.get(name) ?? []), property]);
    }
    for (const [name, all] of byName) {
      if (all.length < 2 || (depth < path.length && name !== path[depth])) continue;
      const lines = all.map(({ offset }) => text.slice(0, offset + 1).split("\n").length);
      found.push(`${lines[0]} \`${name}\` is there ${all.length} times; the last, in line ${lines.at(-1)}, counts`);
    }
    group = byName.get(path[depth] ?? "")?.at(-1)?.children?.[1];
  }
  return found;
}

function inserted(text: string, group: Node, name: string, value: JsonValue): string {
  const at = group.offset + 1;
  const [first] = group.children ?? [];
  const outer = indentAt(text, group.offset);
  const eol = text.includes("\r\n") ? "\r\n" : "\n";
  const isOnOwnLine = first !== undefined && text.slice(at, first.offset).includes("\n");
  if (first && !isOnOwnLine)
    return splice(text, at, at, `${gap(text, at)}${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  const inner = first ? indentAt(text, first.offset) : outer + unitOf(text);
  const line = `${eol}${inner}${JSON.stringify(name)}: ${written(value, text, inner)}`;
  if (first) return splice(text, at, at, `${line},`);
  const end = group.offset + group.length - 1;
  const isBlank = text.slice(at, end).trim() === "";
  return isBlank ? splice(text, at, end, `${line}${eol}${outer}`) : splice(text, at, at, line);
}

function gap(text: string, at: number): string {
  return /^[ \t]*/.exec(text.slice(at))?.[0] ?? "";
}

function written(value: JsonValue, text: string, indent: string): string {
  const eol = text.includes("\r\n") ? "\r\n" : "\n";
  return JSON.stringify(value, null, unitOf(text)).split("\n").join(`${eol}${indent}`);
}

/** What a level is indented by in this text. */
function unitOf(text: string): string {
  return /^([ \t]+)\S/m.exec(text)?.[1] ?? "  ";
}

/** The white space that the line of this character begins with. */
function indentAt(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  return gap(text, start);
}

function commaAfter(text: string, offset: number): number | undefined {
  const scanner = createScanner(text, true);
  scanner.setPosition(offset);
  scanner.scan();
  const at = scanner.getTokenOffset();
  return text[at] === "," ? at : undefined;
}

function splice(text: string, start: number, end: number, replacement: string): string {
  return text.slice(0, start) + replacement + text.slice(end);
}

const HEADER = /^\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$/;
const KEY = /\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)/gy;

/** Without the table and the tables inside it. */
function withoutTable(text: string, path: readonly string[]): string {
  const out: string[] = [];
  let isInside = false;
  for (const line of text.split("\n")) {
    const header = HEADER.exec(line)?.[1];
    if (header !== undefined) {
      const keys = keysOf(header);
      isInside = path.every((key, i) => keys[i] === key);
    }
    if (!isInside) out.push(line);
  }
  return out.join("\n");
}

/** With the table at its end. */
function withTable(text: string, path: readonly string[], value: JsonObject): string {
  const name = path.map((key) => (/^[A-Za-z0-9_-]+$/.test(key) ? key : JSON.stringify(key))).join(".");
  const gap = text === "" || text.endsWith("\n\n") ? "" : text.endsWith("\n") ? "\n" : "\n\n";
  return `${text}${gap}[${name}]\n${stringify(value).trimEnd()}\n`;
}

function keysOf(header: string): string[] {
  const keys: string[] = [];
  for (const [, quoted, literal, bare] of header.matchAll(KEY)) {
    keys.push(quoted === undefined ? (literal ?? bare ?? "") : unquoted(quoted));
  }
  return keys;
}

function unquoted(text: string): string {
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return text;
  }
}
