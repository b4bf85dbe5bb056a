// What a field or type is documented with: what its author wrote, and the limits that no type shows.

import { commentLines } from "../text.js";
import type { Node, NodeTable } from "../schema/node.js";

const BOUNDS = [
  ["minimum", "at least"],
  ["exclusiveMinimum", "more than"],
  ["maximum", "at most"],
  ["exclusiveMaximum", "less than"],
  ["multipleOf", "a multiple of"],
] as const;
const SIZES = [
  ["minLength", "maxLength", "characters"],
  ["minItems", "maxItems", "items"],
  ["minProperties", "maxProperties", "properties"],
] as const;

export function docsOf(table: NodeTable, nodes: readonly Node[]): string[] {
  const described = nodes.find(({ about }) => about.description !== undefined || about.title !== undefined);
  const about = described?.about;
  const lines = commentLines(about?.description ?? about?.title);
  const limits = [...new Set(nodes.flatMap((node) => limitsOf(table, node)))];
  if (limits.length > 0) lines.push(...(lines.length > 0 ? [""] : []), `Must be: ${limits.join("; ")}.`);
  const withDefault = nodes.find((node) => node.about.default !== undefined);
  if (withDefault) lines.push(...commentLines(`Default: ${clip(JSON.stringify(withDefault.about.default))}`));
  if (nodes.some((node) => node.about.deprecated)) lines.push("Deprecated.");
  return lines;
}

function limitsOf({ patterns }: NodeTable, node: Node): string[] {
  const found: string[] = [];
  for (const [key, phrase] of BOUNDS) if (node[key] !== undefined) found.push(`${phrase} ${node[key]}`);
  for (const [min, max, unit] of SIZES) {
    if (node[min] !== undefined) found.push(`at least ${node[min]} ${unit}`);
    if (node[max] !== undefined) found.push(`at most ${node[max]} ${unit}`);
  }
  if (node.uniqueItems) found.push("without repetition");
  if (node.about.format !== undefined) found.push(`of format ${clip(node.about.format)}`);
  else for (const id of node.patterns ?? []) found.push(`matching ${clip(patterns[id]?.source ?? "")}`);
  return found.flatMap((line) => commentLines(line));
}

function clip(text: string): string {
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}
