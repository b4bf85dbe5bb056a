// Conditions over past events, checked against the tools there are. The events of the gateway: `request` when a call is
// asked for, then `permitted`, `approved`, `denied` or `asked`, and `response` or `error` when it has run.

import { nearest } from "../../mcp/index.js";
import { type PolicyAction, type PolicyCatalog, SERVER_REQUESTS } from "../cedar/catalog.js";
import { actionsOf, resolve } from "../cedar/names.js";
import { shapeText, type ValueShape } from "../cedar/shape.js";
import type { Draft } from "../cedar/source.js";
import type { PolicyProblem } from "../cedar/types.js";
import { checkFormula, type HistoryType, type HistoryTypes, type Typed } from "./check.js";
import { currentPathsIn, type EventAtom, FormulaError } from "./formula.js";
import { Monitor } from "./monitor.js";

export const EVENT_KINDS = ["request", "permitted", "approved", "denied", "asked", "response", "error"] as const;
export type EventName = (typeof EVENT_KINDS)[number];

/** What every event has besides the arguments. */
const EVENT_FIELDS: Readonly<Record<string, HistoryType>> = {
  principal: "Agent",
  agent: "String",
  user: "String",
  transport: "String",
  server: "String",
};

/** What a condition may read of the call that is decided. */
const CURRENT: Readonly<Record<string, HistoryType>> = {
  principal: "Agent",
  "principal.agent": "String",
  "principal.app": "String",
  "principal.user": "String",
  resource: "Tool",
  "resource.name": "String",
  "resource.server": "String",
  "context.transport": "String",
};

const ARGUMENTS = "arguments";

export function historyProblems(drafts: readonly Draft[], catalog: PolicyCatalog): PolicyProblem[] {
  return drafts.flatMap((draft) => draft.conditions.flatMap(({ formula }) => problemOf(draft, formula, catalog) ?? []));
}

function problemOf(
  draft: Draft,
  formula: Draft["conditions"][number]["formula"],
  catalog: PolicyCatalog,
): PolicyProblem | undefined {
  try {
    for (const action of readActions(draft, formula, catalog)) {
      const isNamed = draft.tree?.action.op === "==";
      checkFormula(formula, new GatewayTypes(catalog, action, isNamed));
    }
    // Only to see that it can be kept within bounds.
    new Monitor([formula]);
    return undefined;
  } catch (error) {
    if (error instanceof FormulaError) return draft.where.problem(error.offset, error.message, error.help);
    throw error;
  }
}

/** The actions whose arguments the condition is checked with: one of each shape. */
function readActions(
  draft: Draft,
  formula: Draft["conditions"][number]["formula"],
  catalog: PolicyCatalog,
): (PolicyAction | undefined)[] {
  const readsArguments = [...currentPathsIn(formula)].some((path) => path.startsWith("context.arguments"));
  if (!readsArguments || !draft.tree) return [undefined];
  const byShape = new Map<string, PolicyAction>();
  for (const action of actionsOf(draft.tree, catalog)) byShape.set(shapeText(action.shape), action);
  return byShape.size === 0 ? [undefined] : [...byShape.values()];
}

class GatewayTypes implements HistoryTypes {
  readonly #catalog: PolicyCatalog;
  readonly #action: PolicyAction | undefined;
  readonly #isNamed: boolean;

  constructor(catalog: PolicyCatalog, action: PolicyAction | undefined, isNamed: boolean) {
    this.#catalog = catalog;
    this.#action = action;
    this.#isNamed = isNamed;
  }

  event({ type, action, event }: EventAtom): { problem: string; help?: string } | undefined {
    if (type !== "Action") return { problem: `${type} is not an action`, help: 'write Action::"tool"' };
    if (!(EVENT_KINDS as readonly string[]).includes(event)) {
      return { problem: `there is no event ::${event}`, help: `events are ::${EVENT_KINDS.join(", ::")}` };
    }
    if (this.#catalog.actions.has(action)) {
      const isServerRequest = (SERVER_REQUESTS as readonly string[]).includes(action);
      return isServerRequest ? { problem: `${action} is a request of a server, which has no history` } : undefined;
    }
    const meant = nearest(action, [...this.#catalog.actions.keys()]);
    return {
      problem: `there is no tool or method ${action}`,
      help: meant === undefined ? "" : `did you mean ${meant}?`,
    };
  }

  field({ action, event }: EventAtom, path: string): Typed {
    const [root = "", ...rest] = path.split(".");
    if (root === ARGUMENTS) return this.#argument(this.#catalog.actions.get(action), rest, path, true);
    if (path === "outcome" && (event === "response" || event === "error")) return { type: "String" };
    if (path in EVENT_FIELDS) return { type: EVENT_FIELDS[path] };
    const known = [...Object.keys(EVENT_FIELDS), "arguments.…", "outcome (of response and error)"];
    return { problem: `::${event} of ${action} has no field ${path}`, help: `fields are ${known.join(", ")}` };
  }

  current(path: string): Typed {
    if (path in CURRENT) return { type: CURRENT[path] };
    const [root, part, ...rest] = path.split(".");
    if (root === "context" && part === ARGUMENTS) {
      return this.#action ? this.#argument(this.#action, rest, path, this.#isNamed) : { type: undefined };
    }
    const known = [...Object.keys(CURRENT), "context.arguments.…"];
    return { problem: `a condition over the past cannot read ${path}`, help: `it can read ${known.join(", ")}` };
  }

  #argument(action: PolicyAction | undefined, path: readonly string[], shown: string, isNamed: boolean): Typed {
    if (!action || path.length === 0) return { type: undefined };
    const found = resolve(action, { part: ARGUMENTS, path, asksOnly: false });
    if (found.status === "declared") return { type: typeOfShape(found.shape) };
    if (found.status === "open" || !isNamed) return { type: undefined };
    const meant = nearest(found.name, [...found.names]);
    const help = meant === undefined ? `it takes ${found.names.join(", ") || "none"}` : `did you mean ${meant}?`;
    return { problem: `${action.name} takes no argument ${shown.replace(/^context\./, "")}`, help };
  }
}

/** A `number` may come as 1 or 1.5, so nothing is said of its type. */
function typeOfShape(shape: ValueShape): HistoryType {
  switch (shape.kind) {
    case "string":
      return "String";
    case "long":
      return "Long";
    case "bool":
      return "Bool";
    case "set":
      return "Set";
    case "record":
      return "Record";
    default:
      return undefined;
  }
}
