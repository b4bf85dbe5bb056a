// The head of a rule: who, what, on what. Decidable without the arguments, which is what makes slicing possible.

import type { Test } from "./compile.js";
import type { EntityName, PolicyTree, ScopeConstraint } from "./language/ast.js";
import { Entity } from "./value/value.js";

export type ScopePart = "principal" | "action" | "resource";
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
export function sliceKey(tree: PolicyTree): string | undefined {
  const { principal, resource } = tree;
  if (resource.op === "==") return entityKey(resource.entity.type, resource.entity.id);
  if (principal.op === "==") return entityKey(principal.entity.type, principal.entity.id);
  const only = principal.op === "in" ? principal.entities[0] : principal.op === "is" ? principal.in : undefined;
  // An agent's only ancestor is its application, so `in` anything else can only mean the agent itself.
  return only ? entityKey(only.type, only.id) : undefined;
}

export function entityKey(type: string, id: string): string {
  return `${type}::${id}`;
}
