// The Cedar schema that rules are checked against, made from the tools themselves, and stand-ins for arguments that Cedar
// has no type for. A rule may still read those: for Cedar's validator each such read is replaced by a stand-in whose type
// is what the rule uses it as. A wrong guess costs nothing at run time, where a value of another type is an error and an
// error is a deny.

import type { PolicyAction } from "./catalog.js";
import type { CedarSchema } from "./cedar.js";
import { TOOL_GROUP } from "./frame.js";
import { type AstNode, type BinaryNode, chainOf } from "./language/ast.js";
import { type Read, resolve } from "./names.js";
import type { RecordShape, ValueShape } from "./shape.js";

type CedarType = Readonly<Record<string, unknown>>;

const STRING: CedarType = { type: "String" };
const STRINGS: CedarType = { type: "Set", element: STRING };
const BOOL: CedarType = { type: "Boolean" };
const DATETIME: CedarType = { type: "Extension", name: "datetime" };

const CALLER = record({
  app: STRING,
  agent: STRING,
  scope: STRINGS,
  user: { ...STRING, required: false },
  groups: STRINGS,
});

const ENTITIES = {
  App: {},
  Agent: { memberOfTypes: ["App"], shape: CALLER },
  // As a principal it has the attributes of an agent, so that a rule about every action reads them of either.
  Server: { memberOfTypes: ["App"], shape: CALLER },
  Tag: {},
  Tool: {
    memberOfTypes: ["Server", "Tag"],
    shape: record({ name: STRING, server: STRING, tags: STRINGS, readOnly: BOOL }),
  },
  Resource: { memberOfTypes: ["Server"], shape: record({ server: STRING }) },
  Prompt: { memberOfTypes: ["Server"], shape: record({ server: STRING }) },
  Method: {},
};

/**
 * `checked` are the actions a rule is validated for; `named` are only there to be named.
 * `extra` are attributes added to every action's arguments, all required.
 */
export function cedarSchema(
  checked: readonly PolicyAction[],
  named: readonly PolicyAction[],
  extra: Readonly<Record<string, CedarType>> = {},
  conditions: readonly string[] = [],
): CedarSchema {
  const past = Object.fromEntries(conditions.map((attribute) => [attribute, BOOL]));
  const actions: Record<string, unknown> = Object.create(null);
  actions[TOOL_GROUP] = {};
  for (const action of named) actions[action.name] = memberOf(action);
  for (const action of checked) {
    const attributes = attributesOf(action.shape);
    Object.assign(attributes, extra);
    actions[action.name] = {
      ...memberOf(action),
      appliesTo: {
        principalTypes: [action.isServerRequest ? "Server" : "Agent"],
        resourceTypes: action.resourceTypes,
        context: record({
          arguments: record(attributes),
          forwarded: record({}),
          flow: record({}),
          approved: BOOL,
          transport: STRING,
          now: DATETIME,
          ...past,
          ...(action.isServerRequest ? { tool: STRING } : {}),
        }),
      },
    };
  }
  return { "": { entityTypes: ENTITIES, actions } } as unknown as CedarSchema;
}

function memberOf(action: PolicyAction): CedarType {
  return action.isTool ? { memberOf: [{ id: TOOL_GROUP }] } : {};
}

function attributesOf(shape: RecordShape): Record<string, CedarType> {
  const attributes: Record<string, CedarType> = Object.create(null);
  for (const [name, attr] of shape.attrs) attributes[name] = { ...cedarTypeOf(attr.shape), required: attr.required };
  return attributes;
}

/** Where a shape is open its type does not matter: every read of it is rewritten before Cedar sees the rule. */
function cedarTypeOf(shape: ValueShape): CedarType {
  switch (shape.kind) {
    case "string":
      return STRING;
    case "long":
      return { type: "Long" };
    case "bool":
    case "open":
      return BOOL;
    case "decimal":
      return { type: "Extension", name: "decimal" };
    case "set":
      return { type: "Set", element: cedarTypeOf(shape.element) };
    case "record":
      return record(attributesOf(shape));
  }
}

function record(attributes: Readonly<Record<string, CedarType>>): CedarType {
  return { type: "Record", attributes };
}

interface SourceEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A rule as Cedar gets to see it, and the types of the stand-ins. */
interface Rewritten {
  readonly text: string;
  readonly standIns: Readonly<Record<string, CedarType>>;
  /** From an offset in `text` back to one in the rule as written. */
  readonly original: (offset: number) => number;
}

const LONG: CedarType = { type: "Long" };

/**
 * `reads` are those to be replaced, for `actions` in which they have no type; `start` is where the text begins in its
 * file, as the spans count.
 */
export function rewrite(
  text: string,
  start: number,
  reads: readonly Read[],
  actions: readonly [PolicyAction, ...PolicyAction[]],
): Rewritten {
  const standIns: Record<string, CedarType> = {};
  let prefix = "$";
  while (actions.some(({ shape }) => [...shape.attrs.keys()].some((name) => name.startsWith(prefix)))) prefix += "$";
  const edits: SourceEdit[] = [];
  for (const [index, read] of reads.entries()) {
    const { span } = read.node;
    if (!span) continue;
    const name = `${prefix}${index}`;
    standIns[name] = read.asksOnly ? BOOL : usedAs(read, actions[0]);
    edits.push({ start: span.start - start, end: span.end - start, text: `context.arguments["${name}"]` });
  }
  edits.sort((a, b) => a.start - b.start);
  let out = "";
  let at = 0;
  for (const edit of edits) {
    out += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return { text: out + text.slice(at), standIns, original: (offset) => backTo(edits, offset) };
}

function backTo(edits: readonly SourceEdit[], offset: number): number {
  let shift = 0;
  for (const edit of edits) {
    const begins = edit.start + shift;
    if (offset <= begins) break;
    if (offset < begins + edit.text.length) return edit.start;
    shift += edit.text.length - (edit.end - edit.start);
  }
  return offset - shift;
}

/** The type that the operator around a read asks for. */
function usedAs({ node, parent }: Read, action: PolicyAction): CedarType {
  switch (parent?.kind) {
    case "like":
      return STRING;
    case "neg":
      return LONG;
    case "isEmpty":
      return { type: "Set", element: STRING };
    case "binary":
      return operand(parent, node, action);
    case "call":
      return argument(parent.fn);
    case "if":
      return parent.test === node ? BOOL : (typeOfNode(parent.yes === node ? parent.no : parent.yes, action) ?? STRING);
    case "set":
    case "record":
      return STRING;
    default:
      return BOOL;
  }
}

function operand(parent: BinaryNode, node: AstNode, action: PolicyAction): CedarType {
  const isLeft = parent.left === node;
  const other = typeOfNode(isLeft ? parent.right : parent.left, action);
  switch (parent.op) {
    case "&&":
    case "||":
      return BOOL;
    case "+":
    case "-":
    case "*":
      return LONG;
    case "<":
    case "<=":
    case ">":
    case ">=":
      return other ?? LONG;
    case "contains":
      return isLeft ? { type: "Set", element: other ?? STRING } : ((other?.element as CedarType | undefined) ?? STRING);
    case "containsAll":
    case "containsAny":
      return other ?? { type: "Set", element: STRING };
    default:
      return other ?? STRING;
  }
}

const DECIMAL_CALLS = new Set(["lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"]);

function argument(fn: string): CedarType {
  return DECIMAL_CALLS.has(fn) ? { type: "Extension", name: "decimal" } : STRING;
}

const ATTRIBUTES: Readonly<Record<string, CedarType>> = {
  "principal.app": STRING,
  "principal.agent": STRING,
  "principal.scope": STRINGS,
  "principal.user": STRING,
  "principal.groups": STRINGS,
  "resource.server": STRING,
  "resource.name": STRING,
  "resource.tags": { type: "Set", element: STRING },
  "resource.readOnly": BOOL,
  "context.transport": STRING,
  "context.now": DATETIME,
  "context.approved": BOOL,
  "context.tool": STRING,
};
const EXTENSIONS: Readonly<Record<string, string>> = {
  decimal: "decimal",
  ip: "ipaddr",
  datetime: "datetime",
  duration: "duration",
  offset: "datetime",
  toDate: "datetime",
  durationSince: "duration",
  toTime: "duration",
};

/** What can be seen of a type without Cedar's help; undefined where that is nothing. */
function typeOfNode(node: AstNode, action: PolicyAction): CedarType | undefined {
  switch (node.kind) {
    case "literal":
      return typeof node.value === "string" ? STRING : typeof node.value === "boolean" ? BOOL : LONG;
    case "set": {
      const element = node.items[0] ? typeOfNode(node.items[0], action) : undefined;
      return element && { type: "Set", element };
    }
    case "call": {
      const name = EXTENSIONS[node.fn];
      if (name !== undefined) return { type: "Extension", name };
      return node.fn.startsWith("to") ? LONG : BOOL;
    }
    case "neg":
      return LONG;
    case "binary":
      return ["+", "-", "*"].includes(node.op) ? LONG : node.op === "getTag" ? undefined : BOOL;
    case "get": {
      const chain = chainOf(node);
      const [first, ...path] = chain?.path ?? [];
      if (chain?.root !== "context" || first !== "arguments") return ATTRIBUTES[`${chain?.root}.${first}`];
      const found = resolve(action, { part: "arguments", path, asksOnly: false });
      return found.status === "declared" ? cedarTypeOf(found.shape) : undefined;
    }
    case "has":
    case "like":
    case "is":
    case "not":
    case "isEmpty":
      return BOOL;
    default:
      return undefined;
  }
}
