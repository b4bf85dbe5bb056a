// Cedar's expressions as a tagged tree. Cedar's own JSON form stays the authority: see `parsePolicy`.

/** Offsets into the policy's text, end exclusive. */
export interface SourceSpan {
  readonly start: number;
  readonly end: number;
}

export type Variable = "principal" | "action" | "resource" | "context";
export type BinaryOp =
  | "=="
  | "!="
  | "<"
  | "<="
  | ">"
  | ">="
  | "in"
  | "&&"
  | "||"
  | "+"
  | "-"
  | "*"
  | "contains"
  | "containsAll"
  | "containsAny"
  | "getTag"
  | "hasTag";

interface Spanned {
  readonly span?: SourceSpan;
}
interface LiteralNode extends Spanned {
  readonly kind: "literal";
  /** A Long is a number while that is exact, else a bigint. */
  readonly value: boolean | string | number | bigint;
}
interface EntityNode extends Spanned {
  readonly kind: "entity";
  readonly type: string;
  readonly id: string;
}
interface VarNode extends Spanned {
  readonly kind: "var";
  readonly name: Variable;
}
interface UnaryNode extends Spanned {
  readonly kind: "not" | "neg" | "isEmpty";
  readonly arg: AstNode;
}
export interface BinaryNode extends Spanned {
  readonly kind: "binary";
  readonly op: BinaryOp;
  readonly left: AstNode;
  readonly right: AstNode;
}
export interface GetNode extends Spanned {
  readonly kind: "get";
  readonly left: AstNode;
  readonly attr: string;
}
export interface HasNode extends Spanned {
  readonly kind: "has";
  readonly left: AstNode;
  readonly attrs: readonly string[];
}
interface LikeNode extends Spanned {
  readonly kind: "like";
  readonly left: AstNode;
  /** The literal pieces between the wildcards: `a*b` is `["a", "b"]`. */
  readonly pattern: readonly string[];
}
interface IsNode extends Spanned {
  readonly kind: "is";
  readonly left: AstNode;
  readonly entityType: string;
  readonly in?: AstNode;
}
interface IfNode extends Spanned {
  readonly kind: "if";
  readonly test: AstNode;
  readonly yes: AstNode;
  readonly no: AstNode;
}
interface SetNode extends Spanned {
  readonly kind: "set";
  readonly items: readonly AstNode[];
}
interface RecordNode extends Spanned {
  readonly kind: "record";
  /** Sorted by name, the order in which Cedar evaluates them. */
  readonly entries: readonly (readonly [string, AstNode])[];
}
export interface CallNode extends Spanned {
  readonly kind: "call";
  readonly fn: string;
  readonly args: readonly AstNode[];
}
export type AstNode =
  | LiteralNode
  | EntityNode
  | VarNode
  | UnaryNode
  | BinaryNode
  | GetNode
  | HasNode
  | LikeNode
  | IsNode
  | IfNode
  | SetNode
  | RecordNode
  | CallNode;

export interface EntityName {
  readonly type: string;
  readonly id: string;
}

/** `principal`, `action` or `resource` in the head of a rule. */
export type ScopeConstraint = Spanned &
  (
    | { readonly op: "all" }
    | { readonly op: "=="; readonly entity: EntityName }
    | { readonly op: "in"; readonly entities: readonly EntityName[] }
    | { readonly op: "is"; readonly entityType: string; readonly in?: EntityName }
  );

export interface Clause extends Spanned {
  readonly kind: "when" | "unless";
  readonly body: AstNode;
}

export interface PolicyTree {
  readonly effect: "permit" | "forbid";
  readonly principal: ScopeConstraint;
  readonly action: ScopeConstraint;
  readonly resource: ScopeConstraint;
  readonly clauses: readonly Clause[];
  readonly annotations: Readonly<Record<string, string>>;
}

export function childrenOf(node: AstNode): readonly AstNode[] {
  switch (node.kind) {
    case "literal":
    case "entity":
    case "var":
      return [];
    case "not":
    case "neg":
    case "isEmpty":
      return [node.arg];
    case "binary":
      return [node.left, node.right];
    case "get":
    case "has":
    case "like":
      return [node.left];
    case "is":
      return node.in ? [node.left, node.in] : [node.left];
    case "if":
      return [node.test, node.yes, node.no];
    case "set":
      return node.items;
    case "record":
      return node.entries.map(([, value]) => value);
    case "call":
      return node.args;
  }
}

export function walkAst(
  node: AstNode,
  visit: (node: AstNode, parent: AstNode | undefined) => void,
  parent?: AstNode,
): void {
  visit(node, parent);
  for (const child of childrenOf(node)) walkAst(child, visit, node);
}

/** `context.arguments.a.b` as `{ root: "context", path: ["arguments", "a", "b"] }`. */
export function chainOf(node: AstNode): { root: Variable; path: string[] } | undefined {
  const path: string[] = [];
  let at = node;
  while (at.kind === "get") {
    path.push(at.attr);
    at = at.left;
  }
  return at.kind === "var" ? { root: at.name, path: path.reverse() } : undefined;
}

/** The tree without positions, with sorted keys and exact integers: two rules with equal text mean the same. */
export function canonicalText(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(canonicalText).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const entries = Object.entries(value)
    .filter(([key, item]) => key !== "span" && item !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalText(item)}`).join(",")}}`;
}
