// What several nodes that must all hold say together, as far as types can tell.

import type { JsonValue } from "../../mcp/index.js";
import { equalityKey } from "../../schema/documents/index.js";
import type { Node, NodeId, TypeName } from "../schema/node.js";

export const ALL_TYPES: readonly TypeName[] = ["null", "boolean", "number", "string", "array", "object"];

/** A node, and which of its alternatives are spoken for already. */
export interface Conjunct {
  readonly id: NodeId;
  readonly spent: "" | "a" | "o" | "ao";
}

export interface Choice {
  readonly at: Conjunct;
  readonly kind: "any" | "one";
  readonly branches: readonly NodeId[];
}

export interface ValueForm {
  readonly never: boolean;
  /** In JSON Schema's order of declaration; undefined when no node says anything. */
  readonly types: readonly TypeName[] | undefined;
  readonly values: readonly JsonValue[] | undefined;
  readonly nodes: readonly Node[];
  readonly conjuncts: readonly Conjunct[];
  readonly choices: readonly Choice[];
}

export function conjunctKey(conjuncts: readonly Conjunct[]): string {
  return conjuncts
    .map(({ id, spent }) => `${id}${spent}`)
    .sort()
    .join("&");
}

/** Follows `allOf` and references to everything that holds for the same value. INVARIANT: no circles (compile cuts them). */
export function gather(nodes: readonly Node[], start: readonly Conjunct[]): Conjunct[] {
  const found = new Map<NodeId, Conjunct>();
  const pending = [...start].reverse();
  for (let conjunct = pending.pop(); conjunct !== undefined; conjunct = pending.pop()) {
    const before = found.get(conjunct.id);
    if (before !== undefined) {
      const spent = (["a", "o"] as const).filter((kind) => `${before.spent}${conjunct?.spent}`.includes(kind)).join("");
      found.set(conjunct.id, { id: conjunct.id, spent: spent as Conjunct["spent"] });
      continue;
    }
    found.set(conjunct.id, conjunct);
    const all = (nodes[conjunct.id] as Node).all ?? [];
    for (const id of [...all].reverse()) pending.push({ id, spent: "" });
  }
  return [...found.values()];
}

export function shapeOf(table: readonly Node[], start: readonly Conjunct[]): ValueForm {
  const conjuncts = gather(table, start);
  const nodes = conjuncts.map(({ id }) => table[id] as Node);
  const choices: Choice[] = [];
  for (const at of conjuncts) {
    const { any, one } = table[at.id] as Node;
    if (any && !at.spent.includes("a")) choices.push({ at, kind: "any", branches: any });
    if (one && !at.spent.includes("o")) choices.push({ at, kind: "one", branches: one });
  }
  let types: readonly TypeName[] | undefined;
  let values: readonly JsonValue[] | undefined;
  for (const node of nodes) {
    if (node.types) types = types === undefined ? node.types : meetTypes(types, node.types);
    if (node.values) values = values === undefined ? node.values : meetValues(values, node.values);
  }
  if (values !== undefined && types !== undefined)
    values = values.filter((value) => types?.some((type) => hasType(value, type)));
  const never = nodes.some((node) => node.never) || types?.length === 0 || values?.length === 0;
  return { never, types, values, nodes, conjuncts, choices };
}

function meetTypes(a: readonly TypeName[], b: readonly TypeName[]): TypeName[] {
  const met = a.flatMap((type) => {
    if (b.includes(type)) return [type];
    if (type === "integer" && b.includes("number")) return [type];
    return type === "number" && b.includes("integer") ? ["integer" as const] : [];
  });
  return [...new Set(met)];
}

function meetValues(a: readonly JsonValue[], b: readonly JsonValue[]): JsonValue[] {
  const keys = new Set(b.map((value) => equalityKey(value)));
  return a.filter((value) => keys.has(equalityKey(value)));
}

function hasType(value: JsonValue, type: TypeName): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}
