// Tables of a TOML file, by their lines. Whoever calls this reads the result again and compares what it means.

import { stringify } from "smol-toml";
import type { JsonObject } from "../../mcp/index.js";

const HEADER = /^\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$/;
const KEY = /\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)/gy;

/** Without the table and the tables inside it. */
export function withoutTable(text: string, path: readonly string[]): string {
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
export function withTable(text: string, path: readonly string[], value: JsonObject): string {
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
