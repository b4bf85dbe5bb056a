// Arguments that Cedar has no type for. A rule may still read them: for Cedar's validator each such read is replaced
// by a stand-in whose type is what the rule uses it as. A wrong guess costs nothing at run time, where a value of
// another type is an error and an error is a deny.

import type { PolicyAction } from "./catalog.js";
import { type BinaryNode, chainOf, type AstNode } from "./language/ast.js";
import { type Read, resolve } from "./reads.js";
import { cedarTypeOf } from "./schema.js";

type CedarType = Readonly<Record<string, unknown>>;

export interface SourceEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A rule as Cedar gets to see it, and the types of the stand-ins. */
export interface Rewritten {
  readonly text: string;
  readonly standIns: Readonly<Record<string, CedarType>>;
  /** From an offset in `text` back to one in the rule as written. */
  readonly original: (offset: number) => number;
}

const STRING: CedarType = { type: "String" };
const LONG: CedarType = { type: "Long" };
const BOOL: CedarType = { type: "Boolean" };

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
  "principal.scope": { type: "Set", element: STRING },
  "resource.server": STRING,
  "resource.name": STRING,
  "resource.tags": { type: "Set", element: STRING },
  "resource.readOnly": BOOL,
  "context.transport": STRING,
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
