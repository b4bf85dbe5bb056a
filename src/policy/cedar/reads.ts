// Which arguments and forwarded fields a rule reads, and what a tool's schema says about each of them.

import type { PolicyAction } from "./catalog.js";
import { CONTEXT_PARTS, type ContextPart } from "./frame.js";
import { chainOf, type GetNode, type HasNode, type AstNode, type PolicyTree, walkAst } from "./language/ast.js";
import { OPEN_RECORD, type ValueShape } from "./shape.js";

export interface Read {
  readonly node: GetNode | HasNode;
  readonly parent: AstNode | undefined;
  readonly part: ContextPart;
  /** Names under `context.<part>`; for a `has`, the names it asks for are at the end. */
  readonly path: readonly string[];
  readonly asksOnly: boolean;
}

export interface Reads {
  /** Of `context.arguments` and `context.forwarded`. */
  readonly parts: readonly Read[];
  /** True when `context`, `context.arguments` or `context.forwarded` is used as a whole. */
  readonly whole: boolean;
  readonly approved: AstNode | undefined;
}

export function readsOf(tree: PolicyTree): Reads {
  const found: Read[] = [];
  let whole = false;
  let approved: AstNode | undefined;
  const visit = (node: AstNode, parent: AstNode | undefined): void => {
    const continued = parent?.kind === "get" || (parent?.kind === "has" && parent.left === node);
    if (node.kind === "has") {
      const chain = chainOf(node.left);
      const part = chain?.root === "context" && partNamed(chain.path[0]);
      if (chain && part) {
        found.push({ node, parent, part, path: [...chain.path.slice(1), ...node.attrs], asksOnly: true });
      }
    } else if (node.kind === "get" && !continued) {
      const chain = chainOf(node);
      if (chain?.root !== "context") return;
      const [first, ...path] = chain.path;
      const part = partNamed(first);
      if (first === "approved") approved = node;
      else if (!part) return;
      else if (path.length === 0) whole = true;
      else found.push({ node, parent, part, path, asksOnly: false });
    } else if (node.kind === "var" && node.name === "context" && !continued) {
      whole = true;
      approved = node;
    }
  };
  for (const clause of tree.clauses) walkAst(clause.body, visit);
  return { parts: found, whole, approved };
}

function partNamed(name: string | undefined): ContextPart | undefined {
  return CONTEXT_PARTS.find((part) => part === name);
}

export type Resolution =
  | { readonly status: "declared"; readonly shape: ValueShape }
  /** It may be there, but nothing says what it is. */
  | { readonly status: "open"; readonly names: readonly string[]; readonly name: string }
  /** The tool takes no such argument. */
  | { readonly status: "absent"; readonly names: readonly string[]; readonly name: string };

export function resolve(
  action: Pick<PolicyAction, "shape">,
  read: Pick<Read, "part" | "path" | "asksOnly">,
): Resolution {
  // No schema describes what is forwarded.
  let at: ValueShape = read.part === "arguments" ? action.shape : OPEN_RECORD;
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
