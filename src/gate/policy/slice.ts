// Which rules a request has to look at. Cut once at load: by action, then by the one agent, application or resource
// a rule is bound to.

import type { Action, Catalog } from "./catalog.js";
import { TOOL_GROUP } from "./frame.js";
import type { Rule } from "./rule.js";
import { entityKey, fitsAction, sliceKey } from "./scope.js";

export interface Slice {
  readonly action: Action;
  /** Every rule whose action fits. */
  readonly all: readonly Rule[];
  readonly general: readonly Rule[];
  readonly bound: ReadonlyMap<string, readonly Rule[]>;
}

export function sliceRules(rules: readonly Rule[], catalog: Catalog): ReadonlyMap<string, Slice> {
  const byName = new Map<string, Rule[]>();
  const wide: Rule[] = [];
  for (const rule of rules) {
    const constraint = rule.tree?.action;
    if (constraint?.op === "==") push(byName, constraint.entity.id, rule);
    else wide.push(rule);
  }
  const order = new Map(rules.map((rule, index) => [rule, index]));
  const slices = new Map<string, Slice>();
  for (const action of catalog.actions.values()) {
    const groups = action.isTool ? [TOOL_GROUP] : [];
    const fitting = wide.filter((rule) => !rule.tree || fitsAction(rule.tree, action.name, groups));
    const all = [...fitting, ...(byName.get(action.name) ?? [])];
    all.sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0));
    slices.set(action.name, slice(action, all));
  }
  return slices;
}

function slice(action: Action, all: readonly Rule[]): Slice {
  const general: Rule[] = [];
  const bound = new Map<string, Rule[]>();
  for (const rule of all) {
    const key = rule.tree ? sliceKey(rule.tree) : undefined;
    if (key === undefined) general.push(rule);
    else push(bound, key, rule);
  }
  return { action, all, general, bound };
}

function push(map: Map<string, Rule[]>, key: string, rule: Rule): void {
  const list = map.get(key);
  if (list) list.push(rule);
  else map.set(key, [rule]);
}

const NONE: readonly Rule[] = [];

/** The rules that can apply: those bound to nobody in particular, and those bound to this agent, app or resource. */
export function candidates(
  slice: Slice,
  request: { app: string; agent: string; resource: { type: string; id: string } },
): (readonly Rule[])[] {
  if (slice.bound.size === 0) return [slice.general];
  const { app, agent, resource } = request;
  return [
    slice.general,
    slice.bound.get(entityKey("Agent", `${app}/${agent}`)) ?? NONE,
    slice.bound.get(entityKey("App", app)) ?? NONE,
    slice.bound.get(entityKey(resource.type, resource.id)) ?? NONE,
  ];
}
