// A rule ready to run.

import { createHash } from "node:crypto";
import { formulaText } from "../history/formula.js";
import type { RuleMeta } from "./annotations.js";
import type { PolicyAction, PolicyCatalog } from "./catalog.js";
import { evaluateByCedar } from "./cedar.js";
import { compileTest, type Test } from "./compile.js";
import { type Frame, TOOL_GROUP } from "./frame.js";
import { canonicalText, type EntityName, type PolicyTree, type ScopeConstraint } from "./language/ast.js";
import { NotCovered } from "./language/json.js";
import type { Draft, SourcePlace } from "./source.js";
import type { PolicyRequest, PolicyText } from "./types.js";
import { Entity } from "./value/value.js";

export interface Slice {
  readonly action: PolicyAction;
  /** Every rule whose action fits. */
  readonly all: readonly CedarRule[];
  readonly general: readonly CedarRule[];
  readonly bound: ReadonlyMap<string, readonly CedarRule[]>;
}

/** Cut for an action when it is first asked about: of thousands of tools most are never called. */
export class Slices {
  readonly #catalog: PolicyCatalog;
  readonly #byName = new Map<string, CedarRule[]>();
  readonly #wide: CedarRule[] = [];
  readonly #order: ReadonlyMap<CedarRule, number>;
  readonly #cut = new Map<string, Slice>();

  constructor(rules: readonly CedarRule[], catalog: PolicyCatalog) {
    this.#catalog = catalog;
    this.#order = new Map(rules.map((rule, index) => [rule, index]));
    for (const rule of rules) {
      const constraint = rule.tree?.action;
      if (constraint?.op === "==") push(this.#byName, constraint.entity.id, rule);
      else this.#wide.push(rule);
    }
  }

  get(name: string): Slice | undefined {
    const known = this.#cut.get(name);
    if (known) return known;
    const action = this.#catalog.actions.get(name);
    if (!action) return undefined;
    const groups = action.isTool ? [TOOL_GROUP] : [];
    const fitting = this.#wide.filter((rule) => applies(rule, action, groups));
    const all = [...fitting, ...(this.#byName.get(action.name) ?? [])];
    all.sort((a, b) => (this.#order.get(a) ?? 0) - (this.#order.get(b) ?? 0));
    const made = slice(action, all);
    this.#cut.set(name, made);
    return made;
  }
}

/**
 * A permit covers a server's request to a client only when its head names that action: `permit (principal, action,
 * resource)` was written for agents, and must not open the client to every server. A forbid covers what Cedar says.
 */
function applies(rule: CedarRule, action: PolicyAction, groups: readonly string[]): boolean {
  if (action.isServerRequest && rule.effect === "permit") {
    return rule.tree?.action.op === "in" && fitsAction(rule.tree, action.name, groups);
  }
  return !rule.tree || fitsAction(rule.tree, action.name, groups);
}

function slice(action: PolicyAction, all: readonly CedarRule[]): Slice {
  const general: CedarRule[] = [];
  const bound = new Map<string, CedarRule[]>();
  for (const rule of all) {
    const key = rule.tree ? sliceKey(rule.tree) : undefined;
    if (key === undefined) general.push(rule);
    else push(bound, key, rule);
  }
  return { action, all, general, bound };
}

function push(map: Map<string, CedarRule[]>, key: string, rule: CedarRule): void {
  const list = map.get(key);
  if (list) list.push(rule);
  else map.set(key, [rule]);
}

const NONE: readonly CedarRule[] = [];

/** The rules that can apply: those without a scope, and those bound to this principal, app or resource. */
export function candidateRules(
  slice: Slice,
  request: Pick<PolicyRequest, "app" | "agent" | "resource" | "serverRequest">,
): (readonly CedarRule[])[] {
  if (slice.bound.size === 0) return [slice.general];
  const { app, agent, resource, serverRequest } = request;
  return [
    slice.general,
    slice.bound.get(
      serverRequest ? entityKey("Server", serverRequest.server) : entityKey("Agent", `${app}/${agent}`),
    ) ?? NONE,
    slice.bound.get(entityKey("App", app)) ?? NONE,
    slice.bound.get(entityKey(resource.type, resource.id)) ?? NONE,
  ];
}

type ScopePart = "principal" | "action" | "resource";
export const SCOPE_PARTS: readonly ScopePart[] = ["principal", "action", "resource"];

export function compileScope(part: ScopePart, constraint: ScopeConstraint): Test | undefined {
  switch (constraint.op) {
    case "all":
      return undefined;
    case "==": {
      const { type, id } = constraint.entity;
      return (frame) => frame[part].id === id && frame[part].type === type;
    }
    case "in": {
      const parents = constraint.entities.map(toEntity);
      return (frame) => parents.some((parent) => frame.isIn(frame[part], parent));
    }
    case "is": {
      const { entityType } = constraint;
      const parent = constraint.in ? toEntity(constraint.in) : undefined;
      return (frame) => frame[part].type === entityType && (parent === undefined || frame.isIn(frame[part], parent));
    }
  }
}

function toEntity(name: EntityName): Entity {
  return new Entity(name.type, name.id);
}

/** True when the rule can apply to the action at all. */
export function fitsAction(tree: PolicyTree, action: string, groups: readonly string[]): boolean {
  const { action: constraint } = tree;
  const named = (entity: EntityName): boolean => entity.type === "Action" && entity.id === action;
  switch (constraint.op) {
    case "all":
      return true;
    case "==":
      return named(constraint.entity);
    case "in":
      return constraint.entities.some(
        (entity) => named(entity) || (entity.type === "Action" && groups.includes(entity.id)),
      );
    case "is":
      return true;
  }
}

/** The one principal or resource a rule is bound to, as a key for the slice; undefined when it is bound to none. */
function sliceKey(tree: PolicyTree): string | undefined {
  const { principal, resource } = tree;
  if (resource.op === "==") return entityKey(resource.entity.type, resource.entity.id);
  if (principal.op === "==") return entityKey(principal.entity.type, principal.entity.id);
  const only = principal.op === "in" ? principal.entities[0] : principal.op === "is" ? principal.in : undefined;
  // An agent's only ancestor is its application, so `in` anything else can only mean the agent itself.
  return only ? entityKey(only.type, only.id) : undefined;
}

function entityKey(type: string, id: string): string {
  return `${type}::${id}`;
}

export interface CedarRule extends PolicyText {
  readonly meta: RuleMeta;
  readonly tree: PolicyTree | undefined;
  readonly start: number;
  readonly where: SourcePlace;
  readonly byCedar: boolean;
  readonly conditions: Draft["conditions"];
  /** Whether the rule is satisfied; throws EvaluationError where Cedar would report one. */
  readonly test: Test;
}

export interface RuleOptions {
  /** For tests: run these on Cedar although the compiler covers them. */
  readonly forceCedar?: (id: string) => boolean;
}

export function makeRule(draft: Draft, options: RuleOptions = {}): CedarRule {
  const own = draft.exact && !options.forceCedar?.(draft.id) ? compileTree(draft.tree) : undefined;
  return {
    id: draft.id,
    file: draft.where.file,
    line: draft.where.at(draft.start).line,
    effect: draft.effect,
    text: draft.written,
    digest: digestOf(draft),
    meta: draft.meta,
    tree: draft.tree,
    start: draft.start,
    where: draft.where,
    byCedar: own === undefined,
    conditions: draft.conditions,
    test: own ?? ((frame: Frame) => evaluateByCedar(draft, frame)),
  };
}

function compileTree(tree: PolicyTree | undefined): Test | undefined {
  if (!tree) return undefined;
  try {
    const scopes = SCOPE_PARTS.flatMap((part) => compileScope(part, tree[part]) ?? []);
    const clauses = tree.clauses.map((clause) => {
      const test = compileTest(clause.body);
      return clause.kind === "when" ? test : (frame: Frame): boolean => !test(frame);
    });
    return conjunction([...scopes, ...clauses]);
  } catch (error) {
    if (error instanceof NotCovered) return undefined;
    throw error;
  }
}

/** In order, and no further than the first that fails: what stands behind it must not even be evaluated. */
function conjunction(tests: readonly Test[]): Test {
  const [first, second, third] = tests;
  if (!first) return () => true;
  if (!second) return first;
  if (!third) return (frame) => first(frame) && second(frame);
  return (frame) => {
    for (const test of tests) if (!test(frame)) return false;
    return true;
  };
}

function digestOf(draft: Draft): string {
  const text = draft.exact ? canonicalText(draft.tree) : draft.text;
  // The number of a condition depends on the files before it, its meaning does not.
  const form = draft.conditions.reduce(
    (so, { attribute, formula }) => so.replaceAll(JSON.stringify(attribute), JSON.stringify(formulaText(formula))),
    text,
  );
  return createHash("sha256").update(form).digest("hex");
}
