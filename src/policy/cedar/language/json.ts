// Cedar's JSON form of a policy into our tree. What this does not know throws, and the rule then runs on Cedar itself.

import type { AstNode, BinaryOp, Clause, EntityName, PolicyTree, ScopeConstraint, Variable } from "./ast.js";

export class NotCovered extends Error {
  constructor(what: string) {
    super(`${what} is not covered by the compiler`);
    this.name = "NotCovered";
  }
}

type Json = Readonly<Record<string, unknown>>;

const BINARY = new Set<string>([
  ..."== != < <= > >= in && || + - *".split(" "),
  ..."contains containsAll containsAny getTag hasTag".split(" "),
]);

export function treeFromJson(json: unknown): PolicyTree {
  const policy = json as Json;
  return {
    effect: policy.effect === "forbid" ? "forbid" : "permit",
    principal: scopeFromJson(policy.principal as Json),
    action: scopeFromJson(policy.action as Json),
    resource: scopeFromJson(policy.resource as Json),
    clauses: (policy.conditions as Json[]).map(
      (clause): Clause => ({ kind: clause.kind === "unless" ? "unless" : "when", body: nodeFromJson(clause.body) }),
    ),
    annotations: Object.fromEntries(
      Object.entries((policy.annotations ?? {}) as Record<string, string | null>).map(([name, text]) => [
        name,
        text ?? "",
      ]),
    ),
  };
}

function scopeFromJson(scope: Json): ScopeConstraint {
  switch (scope.op) {
    case "All":
      return { op: "all" };
    case "==":
      return { op: "==", entity: entityFromJson(scope.entity) };
    case "in": {
      const entities = (scope.entities as unknown[] | undefined) ?? [scope.entity];
      return { op: "in", entities: entities.map(entityFromJson) };
    }
    case "is": {
      const within = scope.in as Json | undefined;
      const entityType = scope.entity_type as string;
      return within ? { op: "is", entityType, in: entityFromJson(within.entity) } : { op: "is", entityType };
    }
    default:
      throw new NotCovered(`the scope ${JSON.stringify(scope)}`);
  }
}

function entityFromJson(json: unknown): EntityName {
  const outer = json as Json | undefined;
  const entity = (outer?.__entity as Json | undefined) ?? outer;
  if (typeof entity?.type !== "string" || typeof entity.id !== "string") throw new NotCovered("a template slot");
  return { type: entity.type, id: entity.id };
}

function nodeFromJson(json: unknown): AstNode {
  const [entry, ...more] = Object.entries(json as Json);
  if (!entry || more.length > 0) throw new NotCovered(JSON.stringify(json));
  const [op, body] = entry as [string, Json];
  if (BINARY.has(op)) {
    return { kind: "binary", op: op as BinaryOp, left: nodeFromJson(body.left), right: nodeFromJson(body.right) };
  }
  switch (op) {
    case "Value":
      return valueFromJson(body);
    case "Var":
      return { kind: "var", name: body as unknown as Variable };
    case "!":
      return { kind: "not", arg: nodeFromJson(body.arg) };
    case "neg":
      return { kind: "neg", arg: nodeFromJson(body.arg) };
    case "isEmpty":
      return { kind: "isEmpty", arg: nodeFromJson(body.arg) };
    case ".":
      return { kind: "get", left: nodeFromJson(body.left), attr: body.attr as string };
    case "has":
      return { kind: "has", left: nodeFromJson(body.left), attrs: [body.attr as string | string[]].flat() };
    case "like":
      return { kind: "like", left: nodeFromJson(body.left), pattern: patternFromJson(body.pattern as unknown[]) };
    case "is": {
      const node = { kind: "is", left: nodeFromJson(body.left), entityType: body.entity_type as string } as const;
      return body.in === undefined ? node : { ...node, in: nodeFromJson(body.in) };
    }
    case "if-then-else":
      return { kind: "if", test: nodeFromJson(body.if), yes: nodeFromJson(body.then), no: nodeFromJson(body.else) };
    case "Set":
      return { kind: "set", items: (body as unknown as unknown[]).map(nodeFromJson) };
    case "Record":
      return { kind: "record", entries: sorted(Object.entries(body).map(([k, v]) => [k, nodeFromJson(v)])) };
    default:
      if (!Array.isArray(body)) throw new NotCovered(`the operator ${op}`);
      return { kind: "call", fn: op, args: body.map(nodeFromJson) };
  }
}

function valueFromJson(value: unknown): AstNode {
  if (typeof value === "boolean" || typeof value === "string" || typeof value === "number") {
    return { kind: "literal", value };
  }
  if (Array.isArray(value)) return { kind: "set", items: value.map(valueFromJson) };
  const record = value as Json;
  if (record.__entity) return { kind: "entity", ...entityFromJson(record) };
  throw new NotCovered(`the literal ${JSON.stringify(value)}`);
}

function patternFromJson(elements: readonly unknown[]): string[] {
  const pieces = [""];
  for (const element of elements) {
    if (element === "Wildcard") pieces.push("");
    else pieces[pieces.length - 1] += (element as { Literal: string }).Literal;
  }
  return pieces;
}

function sorted(entries: [string, AstNode][]): [string, AstNode][] {
  return entries.sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Equal but for positions, and for integers that Cedar's JSON form has rounded. */
export function sameTree(ours: unknown, theirs: unknown): boolean {
  if (typeof ours === "bigint") return Number(ours) === theirs;
  if (typeof ours !== "object" || ours === null) return ours === theirs;
  if (typeof theirs !== "object" || theirs === null) return false;
  const keys = (value: object): string[] => Object.keys(value).filter((key) => key !== "span");
  const names = keys(ours);
  return (
    names.length === keys(theirs).length &&
    names.every((key) => Object.hasOwn(theirs, key) && sameTree((ours as Json)[key], (theirs as Json)[key]))
  );
}

/** Integers past 2^53 were rounded on the way through JSON; a tree that holds one cannot be trusted. */
export function hasRoundedInteger(value: unknown): boolean {
  if (typeof value === "number") return !Number.isSafeInteger(value);
  return typeof value === "object" && value !== null && Object.values(value).some(hasRoundedInteger);
}
