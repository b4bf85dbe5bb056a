// The types that all targets are written from. INVARIANT: a type holds every value that its nodes accept, and may hold
// more; the nodes decide what is accepted. That is why a target may widen a type, but never narrow it.

import type { JsonPrimitive } from "../../mcp/index.js";
import { commentLines } from "../names.js";
import type { Node, NodeId, NodeTable, TypeName } from "../schema/node.js";

export type Type =
  /** The schema says nothing about the type. */
  | { readonly kind: "any" }
  /** The schema says something that no type here expresses; always reported. */
  | { readonly kind: "opaque" }
  | { readonly kind: "never" }
  | { readonly kind: "null" | "boolean" | "integer" | "number" | "string" }
  | { readonly kind: "list"; readonly items: Type }
  /** `element` is what any position may hold; `exact` when there are always exactly these positions. */
  | {
      readonly kind: "tuple";
      readonly items: readonly Type[];
      readonly rest: Type;
      readonly min: number;
      readonly exact: boolean;
      readonly element: Type;
    }
  | { readonly kind: "map"; readonly values: Type }
  | { readonly kind: "nullable"; readonly of: Type }
  | { readonly kind: "named"; readonly name: string };

export interface TypeField {
  /** As it travels. */
  readonly name: string;
  readonly type: Type;
  /** Listed in `required`: never optional. Everything else is. */
  readonly required: boolean;
  readonly docs: readonly string[];
  /** Whether the schema says what type the field has. */
  readonly typed: boolean;
}

/** One of several types; the first variant that matches a value is the one it has. */
export interface Variant {
  readonly name: string;
  readonly type: Type;
  readonly match: readonly Match[];
}

export type Match = { readonly node: NodeId } | { readonly types: readonly TypeName[] };

export type Declaration = {
  /** In PascalCase, and the only one of its contract. */
  readonly name: string;
  readonly docs: readonly string[];
} & (
  | {
      readonly kind: "object";
      readonly fields: readonly TypeField[];
      /** What fields that are not listed hold; undefined when there can be none. */
      readonly extra: Type | undefined;
    }
  | { readonly kind: "enum"; readonly values: readonly Exclude<JsonPrimitive, null>[] }
  | { readonly kind: "union"; readonly variants: readonly Variant[] }
  | { readonly kind: "alias"; readonly type: Type }
);

export const ANY: Type = { kind: "any" };
export const OPAQUE: Type = { kind: "opaque" };
export const NEVER: Type = { kind: "never" };

export function isSame(a: Type, b: Type): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

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
