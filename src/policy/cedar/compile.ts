// Cedar expressions into closures, with exactly Cedar's semantics: what short-circuits, what is an error,
// what is merely unequal. The property tests compare every operator here with Cedar's own evaluator.

import { conditionOf } from "../history/source.js";
import { EXTENSION_CALLS } from "./extension-calls.js";
import { CONTEXT_PARTS, type ContextPart, type Frame } from "./frame.js";
import { type AstNode, type BinaryNode, type CallNode, chainOf, type HasNode } from "./language/ast.js";
import { NotCovered } from "./language/json.js";
import { add, DateTime, Duration, isLong, type Long, multiply, subtract } from "./value/extensions.js";
import {
  CedarRecord,
  CedarSet,
  Entity,
  EvaluationError,
  equal,
  typeName,
  Unencodable,
  type Value,
} from "./value/value.js";

type CompiledRun = (frame: Frame) => Value;
export type Test = (frame: Frame) => boolean;

/** A closure for a place where only a bool will do. */
export function compileTest(node: AstNode): Test {
  switch (node.kind) {
    case "not": {
      const arg = compileTest(node.arg);
      return (frame) => !arg(frame);
    }
    case "isEmpty": {
      const arg = compileExpression(node.arg);
      return (frame) => asSet(arg(frame)).items.length === 0;
    }
    case "has":
      return compileHas(node);
    case "like": {
      const left = compileExpression(node.left);
      const matches = compileLikePattern(node.pattern);
      return (frame) => matches(asString(left(frame)));
    }
    case "is": {
      const left = compileExpression(node.left);
      const parents = node.in ? compileExpression(node.in) : undefined;
      const { entityType } = node;
      return (frame) => {
        const entity = asEntity(left(frame));
        return entity.type === entityType && (parents === undefined || isInAny(frame, entity, parents(frame)));
      };
    }
    case "binary":
      if (!ARITHMETIC.has(node.op)) return compileBinaryTest(node);
      break;
    default:
  }
  const run = compileExpression(node);
  return (frame) => {
    const value = run(frame);
    if (typeof value !== "boolean") throw new EvaluationError(`expected a bool, found ${typeName(value)}`);
    return value;
  };
}

export function compileExpression(node: AstNode): CompiledRun {
  switch (node.kind) {
    case "literal": {
      const { value } = node;
      return () => value;
    }
    case "entity": {
      const entity = new Entity(node.type, node.id);
      return () => entity;
    }
    case "var":
      return VARIABLES[node.name];
    case "not":
    case "isEmpty":
    case "has":
    case "like":
    case "is":
      return compileTest(node);
    case "neg": {
      const arg = compileExpression(node.arg);
      return (frame) => fits(subtract(0, asLong(arg(frame))));
    }
    case "binary":
      return ARITHMETIC.has(node.op) ? compileArithmetic(node) : compileBinaryTest(node);
    case "get":
      return compileGet(node);
    case "if": {
      const test = compileTest(node.test);
      const yes = compileExpression(node.yes);
      const no = compileExpression(node.no);
      return (frame) => (test(frame) ? yes(frame) : no(frame));
    }
    case "set":
      return compileSet(node.items);
    case "record": {
      const entries = node.entries.map(([name, value]) => [name, compileExpression(value)] as const);
      return (frame) => new CedarRecord(new Map(entries.map(([name, run]) => [name, run(frame)])));
    }
    case "call":
      return compileCall(node);
  }
}

const VARIABLES: Readonly<Record<"principal" | "action" | "resource" | "context", CompiledRun>> = {
  principal: (frame) => frame.principal,
  action: (frame) => frame.action,
  resource: (frame) => frame.resource,
  context: (frame) => frame.context(),
};

/** The operators that do not come out as a bool. */
const ARITHMETIC: ReadonlySet<string> = new Set(["+", "-", "*", "getTag"]);

function compileBinaryTest(node: BinaryNode): Test {
  if (node.op === "&&" || node.op === "||") {
    const left = compileTest(node.left);
    const right = compileTest(node.right);
    return node.op === "&&" ? (frame) => left(frame) && right(frame) : (frame) => left(frame) || right(frame);
  }
  const left = compileExpression(node.left);
  const right = compileExpression(node.right);
  switch (node.op) {
    case "==":
      return (frame) => equal(left(frame), right(frame));
    case "!=":
      return (frame) => !equal(left(frame), right(frame));
    case "<":
      return (frame) => compare(left(frame), right(frame)) < 0;
    case "<=":
      return (frame) => compare(left(frame), right(frame)) <= 0;
    case ">":
      return (frame) => compare(left(frame), right(frame)) > 0;
    case ">=":
      return (frame) => compare(left(frame), right(frame)) >= 0;
    case "in":
      return compileIn(left, right);
    case "contains":
      return (frame) => {
        const set = left(frame);
        const item = right(frame);
        return asSet(set).has(item);
      };
    case "containsAll":
      return (frame) => {
        const set = left(frame);
        const items = right(frame);
        return asSet(set).hasAll(asSet(items));
      };
    case "containsAny":
      return (frame) => {
        const set = left(frame);
        const items = right(frame);
        return asSet(set).hasAny(asSet(items));
      };
    case "hasTag":
      return (frame) => {
        const entity = left(frame);
        const tag = right(frame);
        asEntity(entity);
        asString(tag);
        return false; // None of our entities carries Cedar tags.
      };
    default:
      throw new NotCovered(`the operator ${node.op}`);
  }
}

function compileArithmetic(node: BinaryNode): CompiledRun {
  const left = compileExpression(node.left);
  const right = compileExpression(node.right);
  if (node.op === "getTag") {
    return (frame) => {
      const entity = left(frame);
      const tag = right(frame);
      asEntity(entity);
      throw new EvaluationError(`there is no tag ${JSON.stringify(asString(tag))}`);
    };
  }
  const operate = node.op === "+" ? add : node.op === "-" ? subtract : multiply;
  return (frame) => {
    const a = left(frame);
    const b = right(frame);
    return fits(operate(asLong(a), asLong(b)));
  };
}

function compileIn(left: CompiledRun, right: CompiledRun): Test {
  return (frame) => {
    const child = left(frame);
    const parents = right(frame);
    return isInAny(frame, asEntity(child), parents);
  };
}

function isInAny(frame: Frame, child: Entity, parents: Value): boolean {
  if (parents instanceof Entity) return frame.isIn(child, parents);
  if (!(parents instanceof CedarSet)) {
    throw new EvaluationError(`expected an entity or a set, found ${typeName(parents)}`);
  }
  // Every element has to be an entity, also those behind the one that matches.
  return parents.items.map(asEntity).some((parent) => frame.isIn(child, parent));
}

function compileGet(node: AstNode & { kind: "get" }): CompiledRun {
  const chain = chainOf(node);
  if (chain?.root === "context") {
    const [first, ...path] = chain.path;
    const part = CONTEXT_PARTS.find((each) => each === first);
    if (part && path.length > 0) return (frame) => frame.read(part, path);
    const condition = path.length === 0 ? conditionOf(first ?? "") : undefined;
    if (condition !== undefined) return (frame) => frame.condition(condition);
    if (first === "approved" && path.length === 0) return (frame) => frame.approved;
    if (first === "transport" && path.length === 0) return (frame) => frame.input.transport;
    if (first === "now" && path.length === 0) return (frame) => frame.now;
  }
  const left = compileExpression(node.left);
  const { attr } = node;
  return (frame) => attributeOf(frame, left(frame), attr);
}

function attributeOf(frame: Frame, holder: Value, attr: string): Value {
  let value: Value | undefined;
  if (holder instanceof CedarRecord) value = holder.attrs.get(attr);
  else if (holder instanceof Entity) value = frame.attribute(holder, attr);
  else throw new EvaluationError(`expected a record or an entity with ${attr}, found ${typeName(holder)}`);
  if (value === undefined) throw new EvaluationError(`there is no attribute ${attr}`);
  if (value instanceof Unencodable) throw new EvaluationError(value.why);
  return value;
}

/** `a has b.c` asks `a has b`, then `a.b has c`; what it is asked of is evaluated once. */
function compileHas(node: HasNode): Test {
  const chain = chainOf(node.left);
  const { attrs } = node;
  const part = chain?.root === "context" && CONTEXT_PARTS.find((each) => each === chain.path[0]);
  if (chain && part) return hasRead(part, chain.path.slice(1), attrs);
  const left = compileExpression(node.left);
  return (frame) => {
    let holder = left(frame);
    for (const [index, attr] of attrs.entries()) {
      if (!hasAttribute(frame, holder, attr)) return false;
      if (index < attrs.length - 1) holder = attributeOf(frame, holder, attr);
    }
    return true;
  };
}

function hasRead(part: ContextPart, path: readonly string[], attrs: readonly string[]): Test {
  const steps = attrs.map((attr, index) => ({ attr, path: [...path, ...attrs.slice(0, index)] }));
  const [only] = steps;
  if (only && steps.length === 1) return (frame) => frame.hasRead(part, only.path, only.attr);
  return (frame) => steps.every((step) => frame.hasRead(part, step.path, step.attr));
}

function hasAttribute(frame: Frame, holder: Value, attr: string): boolean {
  if (holder instanceof CedarRecord) return holder.attrs.has(attr);
  if (holder instanceof Entity) return frame.has(holder, attr);
  throw new EvaluationError(`expected a record or an entity, found ${typeName(holder)}`);
}

/** A set of literals is made once. */
function compileSet(items: readonly AstNode[]): CompiledRun {
  const runs = items.map(compileExpression);
  const make = (frame: Frame): CedarSet => new CedarSet(runs.map((run) => run(frame)));
  if (!items.every((item) => item.kind === "literal" || item.kind === "entity")) return make;
  const constant = make(undefined as never);
  return () => constant;
}

function compileCall(node: CallNode): CompiledRun {
  const call = EXTENSION_CALLS.get(node.fn);
  const count = node.args.length;
  if (!call || count !== call.arity) {
    throw new NotCovered(`${node.fn} with ${count} arguments`);
  }
  const runs = node.args.map(compileExpression);
  if (!node.args.every((arg) => arg.kind === "literal")) return (frame) => call.run(runs.map((run) => run(frame)));
  try {
    const constant = call.run(runs.map((run) => run(undefined as never)));
    return () => constant;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Linear in the text: each piece is looked for once, from where the last one ended. */
function compileLikePattern(pieces: readonly string[]): (text: string) => boolean {
  const first = pieces[0] ?? "";
  if (pieces.length === 1) return (text) => text === first;
  const last = pieces.at(-1) ?? "";
  const middle = pieces.slice(1, -1).filter((piece) => piece !== "");
  return (text) => {
    if (!text.startsWith(first) || !text.endsWith(last)) return false;
    let at = first.length;
    for (const piece of middle) {
      const found = text.indexOf(piece, at);
      if (found === -1) return false;
      at = found + piece.length;
    }
    // The last piece must not overlap what was matched before it.
    return at <= text.length - last.length;
  };
}

function compare(a: Value, b: Value): number {
  if (isLong(a) && isLong(b)) return order(a, b);
  if (a instanceof DateTime && b instanceof DateTime) return order(a.ms, b.ms);
  if (a instanceof Duration && b instanceof Duration) return order(a.ms, b.ms);
  throw new EvaluationError(`${typeName(a)} and ${typeName(b)} have no order`);
}

function order(a: Long, b: Long): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function fits(value: Long | undefined): Long {
  if (value === undefined) throw new EvaluationError("the result does not fit 64 bits");
  return value;
}

function asLong(value: Value): Long {
  if (isLong(value)) return value;
  throw new EvaluationError(`expected a long, found ${typeName(value)}`);
}
function asString(value: Value): string {
  if (typeof value === "string") return value;
  throw new EvaluationError(`expected a string, found ${typeName(value)}`);
}
function asEntity(value: Value): Entity {
  if (value instanceof Entity) return value;
  throw new EvaluationError(`expected an entity, found ${typeName(value)}`);
}
function asSet(value: Value): CedarSet {
  if (value instanceof CedarSet) return value;
  throw new EvaluationError(`expected a set, found ${typeName(value)}`);
}
