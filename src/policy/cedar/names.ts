// What a rule reads and names, and the names that nothing answers to. Cedar checks attributes but lets any entity id pass,
// and to it `context.arguments has pth` is simply false; a forbid that says so would never fire.

import { editDistance, nearest } from "../../mcp/index.js";
import type { PolicyAction, PolicyCatalog } from "./catalog.js";
import { CONTEXT_PARTS, type ContextPart, TOOL_GROUP } from "./frame.js";
import {
  type AstNode,
  chainOf,
  type EntityName,
  type GetNode,
  type HasNode,
  type PolicyTree,
  type SourceSpan,
  walkAst,
} from "./language/ast.js";
import { fitsAction } from "./rule.js";
import { OPEN_RECORD, type ValueShape } from "./shape.js";
import type { Draft } from "./source.js";
import type { PolicyProblem, ResourceType } from "./types.js";

export interface Read {
  readonly node: GetNode | HasNode;
  readonly parent: AstNode | undefined;
  readonly part: ContextPart;
  /** Names under `context.<part>`; for a `has`, the names it asks for are at the end. */
  readonly path: readonly string[];
  readonly asksOnly: boolean;
}

export interface Reads {
  /** Of `context.arguments`, `context.forwarded` and `context.flow`. */
  readonly parts: readonly Read[];
  /** True when `context`, `context.arguments`, `context.forwarded` or `context.flow` is used as a whole. */
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

type Resolution =
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
    // An attribute of a value that is not a record is a type error, which Cedar reports better.
    if (at.kind !== "record") return { status: "declared", shape: at };
    const attr = at.attrs.get(name);
    if (!attr) return { status: at.open ? "open" : "absent", names: [...at.attrs.keys()], name };
    at = attr.shape;
  }
  if (at.kind === "open" && !read.asksOnly) return { status: "open", names: [], name: "" };
  return { status: "declared", shape: at };
}

/** The actions a rule can apply to, by its head. */
export function actionsOf(tree: PolicyTree, catalog: PolicyCatalog): PolicyAction[] {
  const named = tree.action.op === "==" ? [catalog.actions.get(tree.action.entity.id)] : catalog.actions.values();
  return [...named].filter(
    (action) =>
      action !== undefined &&
      fitsAction(tree, action.name, action.isTool ? [TOOL_GROUP] : []) &&
      action.resourceTypes.some((type) => resourceFits(tree, type)),
  ) as PolicyAction[];
}

function resourceFits({ resource }: PolicyTree, type: ResourceType): boolean {
  switch (resource.op) {
    case "all":
      return true;
    case "==":
      return resource.entity.type === type;
    case "is":
      return resource.entityType === type;
    case "in":
      return resource.entities.some(
        (parent) =>
          parent.type === type ||
          (parent.type === "Server"
            ? type !== "Method" && type !== "Agent"
            : parent.type === "App"
              ? type === "Agent"
              : type === "Tool"),
      );
  }
}

export function entitiesOf(tree: PolicyTree): { entity: EntityName; span: SourceSpan | undefined }[] {
  const found: { entity: EntityName; span: SourceSpan | undefined }[] = [];
  for (const constraint of [tree.principal, tree.action, tree.resource]) {
    const entities = constraint.op === "==" ? [constraint.entity] : constraint.op === "in" ? constraint.entities : [];
    for (const entity of entities) found.push({ entity, span: constraint.span });
    if (constraint.op === "is" && constraint.in) found.push({ entity: constraint.in, span: constraint.span });
  }
  const visit = (node: AstNode): void => {
    if (node.kind === "entity") found.push({ entity: node, span: node.span });
  };
  for (const clause of tree.clauses) walkAst(clause.body, visit);
  return found;
}

export function nameProblems(draft: Draft, tree: PolicyTree, reads: Reads, catalog: PolicyCatalog): PolicyProblem[] {
  const problems: PolicyProblem[] = [];
  const report = (span: SourceSpan | undefined, message: string, help: string): void => {
    problems.push(draft.where.problem(span?.start ?? draft.start, message, help));
  };
  for (const { entity, span } of entitiesOf(tree)) {
    const wrong = entityProblem(entity, catalog);
    if (wrong) report(span, wrong.message, wrong.help);
  }
  const actions = actionsOf(tree, catalog);
  for (const read of reads.parts) {
    const wrong = argumentProblem(read, actions);
    if (wrong) report(read.node.span, wrong.message, wrong.help);
  }
  return problems;
}

interface Wrong {
  readonly message: string;
  readonly help: string;
}

function entityProblem({ type, id }: EntityName, catalog: PolicyCatalog): Wrong | undefined {
  if (type === "Action" && id !== TOOL_GROUP && !catalog.actions.has(id)) {
    return { message: `there is no tool or method ${id}`, help: didYouMean(id, catalog.actions.keys(), 'Action::"') };
  }
  if (type === "Tool" && !catalog.isTool(id)) {
    return { message: `there is no tool ${id}`, help: didYouMean(id, catalog.toolNames, 'Tool::"') };
  }
  if (type === "Agent" && !/^[^/]+\/./.test(id)) {
    return { message: `Agent::"${id}" cannot match any caller`, help: 'an agent is written Agent::"<app>/<agent>"' };
  }
  return undefined;
}

function argumentProblem(read: Read, actions: readonly PolicyAction[]): Wrong | undefined {
  if (actions.length === 0 || actions.some((action) => resolve(action, read).status === "declared")) return undefined;
  const resolutions = actions.map((action) => resolve(action, read));
  const open = resolutions.some((each) => each.status === "open");
  const names = new Set(resolutions.flatMap((each) => (each.status === "declared" ? [] : each.names)));
  const name = resolutions.find((each) => each.status !== "declared" && each.name !== "");
  const text = name && name.status !== "declared" ? name.name : (read.path.at(-1) ?? "");
  // Where a schema leaves room for more names, only one that is nearly a declared one is taken for a slip.
  if (open && ![...names].some((declared) => isSlip(text, declared))) return undefined;
  const full = `context.${read.part}.${read.path.join(".")}`;
  const only =
    actions.length === 1 ? `${actions[0]?.name} has no argument` : "no tool this rule is about has an argument";
  return { message: `${only} ${JSON.stringify(text)} (in ${full})`, help: didYouMean(text, names, '"') };
}

/** True when the name is nearly, but not quite, the declared one. */
export function isSlip(name: string, declared: string): boolean {
  const limit = name.length > 5 ? 3 : 2;
  // Names that differ more in length are no slips, and long ones are compared by their beginning.
  if (name === declared || Math.abs(name.length - declared.length) >= limit) return false;
  return editDistance(name.slice(0, 64).toLowerCase(), declared.slice(0, 64).toLowerCase()) < limit;
}

export function didYouMean(name: string, candidates: Iterable<string>, before: string): string {
  const meant = nearest(name, candidates);
  return meant === undefined ? "" : `did you mean ${before}${meant}"?`;
}
