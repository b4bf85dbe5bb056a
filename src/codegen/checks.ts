// The table of nodes as data: what generated code carries along to decide with. Equal nodes appear once.

import { type Contract, sidesOf } from "./contract.js";
import { DEFAULT_CODEGEN_LIMITS } from "./report.js";
import { type Node, type NodeId, ONE_SCHEMA, type Pattern } from "./schema/node.js";
import { compilePattern, type PatternProgram } from "./schema/pattern.js";

export interface Checks {
  /** Plain JSON; maps are lists of pairs, references are places in this list. */
  readonly nodes: readonly Readonly<Record<string, unknown>>[];
  readonly patterns: readonly CompiledPattern[];
  /** Where a node of the contract went. */
  place(id: NodeId): number;
}

/** A pattern with the program that it was compiled to, or the reason why it has none. */
interface CompiledPattern extends Pattern {
  readonly program: PatternProgram | string;
}

const CHILD = [...ONE_SCHEMA, "items"] as const;
const CHILDREN = ["prefixItems", "all", "any", "one"] as const;
const NAMED_CHILDREN = ["properties", "patternProperties", "dependentSchemas"] as const;
const MAX_ROUNDS = 12;

export function encodeChecks(contract: Contract): Checks {
  const { nodes, patterns } = contract.table;
  const reached = reachable(nodes, rootsOf(contract));
  // Nodes that say the same about the same are one. A round can make more of them equal; missing some costs only size.
  let same = new Map<NodeId, NodeId>(reached.map((id) => [id, id]));
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const byText = new Map<string, NodeId>();
    const next = new Map<NodeId, NodeId>();
    for (const id of reached) {
      const text = JSON.stringify(encode(nodes[id] as Node, (child) => same.get(child) as NodeId));
      if (!byText.has(text)) byText.set(text, id);
      next.set(id, byText.get(text) as NodeId);
    }
    const settled = reached.every((id) => same.get(id) === next.get(id));
    same = next;
    if (settled) break;
  }
  const kept = reached.filter((id) => same.get(id) === id);
  const places = new Map(kept.map((id, place) => [id, place]));
  const place = (id: NodeId): number => {
    const found = places.get(same.get(id) as NodeId);
    if (found === undefined) throw new Error(`node ${id} is in no table`);
    return found;
  };
  return {
    nodes: kept.map((id) => encode(nodes[id] as Node, place)),
    patterns: patterns.map((pattern) => ({
      ...pattern,
      program: compilePattern(pattern, DEFAULT_CODEGEN_LIMITS.maxPatternSize),
    })),
    place,
  };
}

/** Everything that decides: both sides of each tool, and what tells the variants of a union apart. */
function rootsOf({ tools, declarations }: Contract): NodeId[] {
  const sides = sidesOf(tools).map(({ node }) => node);
  const variants = declarations.flatMap((declaration) => (declaration.kind === "union" ? declaration.variants : []));
  return [...sides, ...variants.flatMap(({ match }) => match.flatMap((each) => ("node" in each ? [each.node] : [])))];
}

function reachable(nodes: readonly Node[], roots: readonly NodeId[]): NodeId[] {
  const found = new Set<NodeId>();
  const pending = [...roots].reverse();
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    if (found.has(id)) continue;
    found.add(id);
    encode(nodes[id] as Node, (child) => {
      pending.push(child);
      return child;
    });
  }
  return [...found].sort((a, b) => a - b);
}

function encode(node: Node, child: (id: NodeId) => number): Record<string, unknown> {
  const { about: _, ...rest } = node;
  const out: Record<string, unknown> = { ...rest };
  for (const key of CHILD) if (node[key] !== undefined) out[key] = child(node[key]);
  for (const key of CHILDREN) if (node[key] !== undefined) out[key] = node[key].map(child);
  for (const key of NAMED_CHILDREN)
    if (node[key] !== undefined) out[key] = [...node[key]].map(([name, id]) => [name, child(id)]);
  if (node.dependentRequired) out.dependentRequired = [...node.dependentRequired];
  return out;
}
