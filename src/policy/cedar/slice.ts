// Which rules a request has to look at. Cut once at load: by action, then by the one agent, application or resource
// a rule is bound to.

import type { PolicyAction, PolicyCatalog } from "./catalog.js";
import { TOOL_GROUP } from "./frame.js";
import type { CedarRule } from "./rule.js";
import type { PolicyRequest } from "./types.js";
import { entityKey, fitsAction, sliceKey } from "./scope.js";

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

/** The rules that can apply: those bound to nobody in particular, and those bound to this principal, app or resource. */
export function candidates(
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
