// One request as the rules see it, and a caller's JSON as Cedar values. The encoding is ours alone: Cedar's own JSON form
// would let a caller forge entities with `__entity`, and it rejects the whole request for one null. Here a value without a
// Cedar form is an error for the rule that reads it and for no other.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import type { RecordShape, ValueShape } from "./shape.js";
import type { PolicyResource } from "./types.js";
import { DateTime, Decimal } from "./value/extensions.js";
import { CedarRecord, CedarSet, Entity, EvaluationError, Unencodable, type Value } from "./value/value.js";

/** Keys with which Cedar's JSON form escapes from data into entities and functions. */
const RESERVED_KEYS = new Set(["__entity", "__extn", "__expr"]);

/** As deep as the strict JSON reader lets a message be. */
const MAX_DEPTH = 128;

/** Undefined when the arguments may be shown to policy, else why not. */
export function argumentsProblem(value: JsonValue, depth = 0): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (depth > MAX_DEPTH) return `arguments are nested deeper than ${MAX_DEPTH} levels`;
  if (Array.isArray(value)) {
    for (const item of value) {
      const why = argumentsProblem(item, depth + 1);
      if (why !== undefined) return why;
    }
    return undefined;
  }
  for (const key in value) {
    if (RESERVED_KEYS.has(key)) return `the argument name ${key} is reserved by the policy language`;
    const item = value[key];
    const why = typeof item === "object" ? argumentsProblem(item, depth + 1) : undefined;
    if (why !== undefined) return why;
  }
  return undefined;
}

export function encode(value: JsonValue | undefined, shape: ValueShape | undefined, name: string): Value {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? value : new Unencodable(`argument ${name} is not well-formed Unicode`);
    case "boolean":
      return value;
    case "number":
      return encodeNumber(value, shape, name);
    default:
      if (value === null || value === undefined) {
        return new Unencodable(`argument ${name} is null, which policy cannot compare`);
      }
      return Array.isArray(value) ? encodeArray(value, shape, name) : encodeRecord(value, shape, name);
  }
}

/** JSON has one form for 1 and 1.0: for `number` every value is a decimal, else an integer is a Long. */
function encodeNumber(value: number, shape: ValueShape | undefined, name: string): Value {
  if (shape?.kind !== "decimal" && Number.isInteger(value)) {
    if (Number.isSafeInteger(value)) return value;
    return new Unencodable(`argument ${name} is ${value}, which is past the integers that JSON carries exactly`);
  }
  const decimal = Decimal.fromNumber(value);
  return decimal ?? new Unencodable(`argument ${name} is ${value}, which is not a decimal of at most four digits`);
}

function encodeArray(value: readonly JsonValue[], shape: ValueShape | undefined, name: string): Value {
  const element = shape?.kind === "set" ? shape.element : undefined;
  const items: Value[] = [];
  for (const item of value) {
    const encoded = encode(item, element, `${name}[${items.length}]`);
    if (encoded instanceof Unencodable) return encoded;
    if (encoded instanceof CedarRecord && encoded.flaw !== undefined) return new Unencodable(encoded.flaw);
    items.push(encoded);
  }
  return new CedarSet(items);
}

export function encodeRecord(value: JsonObject, shape: ValueShape | undefined, name: string): CedarRecord {
  const attrs = new Map<string, Value>();
  for (const key of Object.keys(value)) {
    attrs.set(key, encode(value[key], attributeShape(shape, key), name === "" ? key : `${name}.${key}`));
  }
  return new CedarRecord(attrs);
}

function attributeShape(shape: ValueShape | undefined, key: string): ValueShape | undefined {
  return shape?.kind === "record" ? shape.attrs.get(key)?.shape : undefined;
}

/** The group every tool's action belongs to. */
export const TOOL_GROUP = "tools/call";

/** What the rules need to know of the action that is asked for. */
export interface ActionInfo {
  readonly name: string;
  readonly isTool: boolean;
  readonly shape: RecordShape;
}

interface FrameInput {
  readonly app: string;
  readonly agent: string;
  readonly scope: readonly string[];
  readonly user?: string | undefined;
  readonly groups?: readonly string[] | undefined;
  readonly resource: PolicyResource;
  readonly arguments: JsonObject;
  readonly forwarded?: JsonObject;
  readonly flow?: JsonObject;
  readonly serverRequest?: { readonly server: string; readonly tool: string };
  readonly transport: string;
  readonly now?: number | undefined;
  readonly history?: (condition: number) => boolean;
}

/** The open records of `context`, encoded by us alone: what a caller or a server wrote, and what is known of its flow. */
export type ContextPart = "arguments" | "forwarded" | "flow";
export const CONTEXT_PARTS: readonly ContextPart[] = ["arguments", "forwarded", "flow"];

const NOTHING: JsonObject = {};

export class Frame {
  readonly principal: Entity;
  readonly action: Entity;
  readonly resource: Entity;
  readonly input: FrameInput;
  readonly info: ActionInfo;
  readonly isTool: (name: string) => boolean;
  /** True only while a rule is evaluated whose challenge was approved. */
  approved = false;
  #scope: CedarSet | undefined;
  #groups: CedarSet | undefined;
  #tags: CedarSet | undefined;
  #encoded: Map<JsonValue, Value> | undefined;

  constructor(input: FrameInput, info: ActionInfo, isTool: (name: string) => boolean) {
    this.input = input;
    this.info = info;
    this.isTool = isTool;
    const { serverRequest } = input;
    this.principal = serverRequest
      ? new Entity("Server", serverRequest.server)
      : new Entity("Agent", `${input.app}/${input.agent}`);
    this.action = new Entity("Action", info.name);
    this.resource = new Entity(input.resource.type, input.resource.id);
  }

  get scope(): CedarSet {
    this.#scope ??= new CedarSet(this.input.scope);
    return this.#scope;
  }
  get groups(): CedarSet {
    this.#groups ??= new CedarSet(this.input.groups ?? []);
    return this.#groups;
  }
  get tags(): CedarSet {
    this.#tags ??= new CedarSet(this.input.resource.tags ?? []);
    return this.#tags;
  }

  /** The value at `context.<part>.<path>`; an error when it is missing or has no Cedar form. */
  read(part: ContextPart, path: readonly string[]): Value {
    let raw: JsonValue | undefined = this.#part(part);
    for (const name of path) raw = this.#step(raw, name, path, part);
    if (typeof raw === "boolean") return raw;
    const value = this.#encode(raw, path, part);
    if (value instanceof Unencodable) throw new EvaluationError(value.why);
    return value;
  }

  /** The gateway's clock when the request is decided. */
  get now(): DateTime {
    if (this.input.now === undefined) throw new EvaluationError("the time of the request is not known");
    return new DateTime(this.input.now);
  }

  /** Whether a condition over past events holds; an error where the past is not known. */
  condition(number: number): boolean {
    const { history } = this.input;
    if (history === undefined) throw new EvaluationError("the rule is about past calls, and history is not available");
    return history(number);
  }

  /** Whether `context.<part>.<path>` has `attr`. A null counts as there: it will reach the tool. */
  hasRead(part: ContextPart, path: readonly string[], attr: string): boolean {
    let raw: JsonValue | undefined = this.#part(part);
    for (const name of path) raw = this.#step(raw, name, path, part);
    return Object.hasOwn(this.#record(raw, path, part), attr);
  }

  #part(part: ContextPart): JsonObject {
    return this.input[part] ?? NOTHING;
  }

  #step(raw: JsonValue | undefined, name: string, path: readonly string[], part: ContextPart): JsonValue | undefined {
    const record = this.#record(raw, path, part);
    if (!Object.hasOwn(record, name)) throw new EvaluationError(`${noun(part)} ${path.join(".")} is missing`);
    return record[name];
  }

  #record(raw: JsonValue | undefined, path: readonly string[], part: ContextPart): JsonObject {
    if (typeof raw === "object" && raw !== null && !Array.isArray(raw)) return raw;
    throw new EvaluationError(`${noun(part)} ${path.join(".")} cannot be read: its parent is not an object`);
  }

  #encode(raw: JsonValue | undefined, path: readonly string[], part: ContextPart): Value {
    const isBig = typeof raw === "object" && raw !== null;
    const known = isBig ? this.#encoded?.get(raw) : undefined;
    if (known !== undefined) return known;
    const isTyped = typeof raw !== "string" && part === "arguments";
    const shape = isTyped ? path.reduce<ValueShape | undefined>(attributeShape, this.info.shape) : undefined;
    const value = encode(raw, shape, path.join("."));
    if (isBig) {
      this.#encoded ??= new Map();
      this.#encoded.set(raw, value);
    }
    return value;
  }

  context(): CedarRecord {
    return new CedarRecord(
      new Map<string, Value>([
        ["arguments", encodeRecord(this.input.arguments, this.info.shape, "")],
        ["forwarded", encodeRecord(this.#part("forwarded"), undefined, "")],
        ["flow", encodeRecord(this.#part("flow"), undefined, "")],
        ["approved", this.approved],
        ["transport", this.input.transport],
        ...(this.input.now === undefined ? [] : [["now", this.now] as const]),
        ...(this.input.serverRequest ? [["tool", this.input.serverRequest.tool] as const] : []),
      ]),
    );
  }

  /** Undefined when the entity has no such attribute; an error when nothing is known of the entity. */
  attribute(entity: Entity, attr: string): Value | undefined {
    const { input } = this;
    if (same(entity, this.principal)) {
      if (attr === "app") return input.app;
      if (attr === "agent") return input.agent;
      if (attr === "user") return input.user;
      if (attr === "groups") return this.groups;
      return attr === "scope" ? this.scope : undefined;
    }
    if (same(entity, this.resource)) {
      if (entity.type === "Agent") return this.#askedAgent(attr);
      if (attr === "server" && entity.type !== "Method") return input.resource.server;
      if (entity.type !== "Tool") return undefined;
      if (attr === "name") return entity.id;
      if (attr === "readOnly") return input.resource.readOnly ?? false;
      return attr === "tags" ? this.tags : undefined;
    }
    if (this.#isAction(entity)) return undefined;
    throw new EvaluationError(`nothing is known of ${entity.type}::${JSON.stringify(entity.id)}`);
  }

  /** INVARIANT: an application name has no slash, so the first one ends it. */
  #askedAgent(attr: string): Value | undefined {
    const { id, scope = [], user, groups = [] } = this.input.resource;
    const slash = id.indexOf("/");
    if (attr === "app") return id.slice(0, slash);
    if (attr === "agent") return id.slice(slash + 1);
    if (attr === "user") return user;
    if (attr === "groups") return new CedarSet(groups);
    return attr === "scope" ? new CedarSet(scope) : undefined;
  }

  has(entity: Entity, attr: string): boolean {
    const known = same(entity, this.principal) || same(entity, this.resource);
    return known && this.attribute(entity, attr) !== undefined;
  }

  #isAction(entity: Entity): boolean {
    return same(entity, this.action) || (entity.type === "Action" && this.isTool(entity.id));
  }

  isIn(child: Entity, parent: Entity): boolean {
    if (same(child, parent)) return true;
    const { input } = this;
    switch (parent.type) {
      case "App":
        return (
          parent.id === input.app &&
          (same(child, this.principal) || (child.type === "Agent" && same(child, this.resource)))
        );
      case "Server":
        return parent.id === input.resource.server && isOffered(child) && same(child, this.resource);
      case "Tag":
        return child.type === "Tool" && same(child, this.resource) && (input.resource.tags ?? []).includes(parent.id);
      case "Action":
        return parent.id === TOOL_GROUP && child.type === "Action" && this.isTool(child.id);
      default:
        return false;
    }
  }
}

/** What a server offers belongs to it; a method and an agent do not. */
function isOffered({ type }: Entity): boolean {
  return type !== "Method" && type !== "Agent";
}

function noun(part: ContextPart): string {
  if (part === "flow") return "context.flow";
  return part === "arguments" ? "argument" : "forwarded field";
}

function same(a: Entity, b: Entity): boolean {
  return a.id === b.id && a.type === b.type;
}
