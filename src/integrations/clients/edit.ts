// Servers put into and taken out of a client's configuration by the smallest change of its text: comments, order and
// layout stay. Every edit is checked: the new text must mean the old plus exactly what was asked for.

import { isDeepStrictEqual } from "node:util";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { CliError } from "../../lib/exit.js";
import { withoutProperty, withProperty } from "./json-properties.js";
import { BYTE_ORDER_MARK, parseConfig } from "./read.js";
import { withoutTable, withTable } from "./toml-tables.js";

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
