// Which arguments a rule reads, and what a tool's schema says about each of them.

import { chainOf, type GetNode, type HasNode, type Node, type PolicyTree, walk } from "./language/ast.js";
import type { RecordShape, Shape } from "./shape.js";

export interface Read {
  readonly node: GetNode | HasNode;
  readonly parent: Node | undefined;
  /** Names under `context.arguments`; for a `has`, the names it asks for are at the end. */
  readonly path: readonly string[];
  readonly asksOnly: boolean;
}

export interface Reads {
  readonly arguments: readonly Read[];
  /** True when `context` or `context.arguments` is used as a whole. */
  readonly whole: boolean;
  readonly approved: Node | undefined;
}

export function readsOf(tree: PolicyTree): Reads {
  const found: Read[] = [];
  let whole = false;
  let approved: Node | undefined;
  const visit = (node: Node, parent: Node | undefined): void => {
    const continued = parent?.kind === "get" || (parent?.kind === "has" && parent.left === node);
    if (node.kind === "has") {
      const chain = chainOf(node.left);
      if (chain?.root === "context" && chain.path[0] === "arguments") {
        found.push({ node, parent, path: [...chain.path.slice(1), ...node.attrs], asksOnly: true });
      }
    } else if (node.kind === "get" && !continued) {
      const chain = chainOf(node);
      if (chain?.root !== "context") return;
      const [first, ...path] = chain.path;
      if (first === "approved") approved = node;
      else if (first !== "arguments") return;
      else if (path.length === 0) whole = true;
      else found.push({ node, parent, path, asksOnly: false });
    } else if (node.kind === "var" && node.name === "context" && !continued) {
      whole = true;
      approved = node;
    }
  };
  for (const clause of tree.clauses) walk(clause.body, visit);
  return { arguments: found, whole, approved };
}

export type Resolution =
  | { readonly status: "declared"; readonly shape: Shape }
  /** It may be there, but nothing says what it is. */
  | { readonly status: "open"; readonly names: readonly string[]; readonly name: string }
  /** The tool takes no such argument. */
  | { readonly status: "absent"; readonly names: readonly string[]; readonly name: string };

export function resolve(shape: RecordShape, read: Read): Resolution {
  let at: Shape = shape;
  for (const name of read.path) {
    if (at.kind === "open") return { status: "open", names: [], name };
    // A name on something that is no record is a type error, which Cedar words better.
    if (at.kind !== "record") return { status: "declared", shape: at };
    const attr = at.attrs.get(name);
    if (!attr) return { status: at.open ? "open" : "absent", names: [...at.attrs.keys()], name };
    at = attr.shape;
  }
  if (at.kind === "open" && !read.asksOnly) return { status: "open", names: [], name: "" };
  return { status: "declared", shape: at };
}
