// One request as the rules see it. Made once a decision; everything that is rarely asked for is made on demand.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import { attributeShape, encode, encodeRecord } from "./encode.js";
import type { RecordShape, ValueShape } from "./shape.js";
import type { PolicyResource } from "./types.js";
import { CedarRecord, CedarSet, Entity, EvaluationError, Unencodable, type Value } from "./value/value.js";

/** The group every tool's action belongs to. */
export const TOOL_GROUP = "tools/call";

/** What the rules need to know of the action that is asked for. */
export interface ActionInfo {
  readonly name: string;
  readonly isTool: boolean;
  readonly shape: RecordShape;
}

export interface FrameInput {
  readonly app: string;
  readonly agent: string;
  readonly scope: readonly string[];
  readonly resource: PolicyResource;
  readonly arguments: JsonObject;
  readonly forwarded?: JsonObject;
  readonly serverRequest?: { readonly server: string; readonly tool: string };
  readonly transport: string;
}

/** The parts of `context` that a caller or a server wrote: open records, encoded by us alone. */
export type ContextPart = "arguments" | "forwarded";
export const CONTEXT_PARTS: readonly ContextPart[] = ["arguments", "forwarded"];

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

  /** Whether `context.<part>.<path>` has `attr`. A null counts as there: it will reach the tool. */
  hasRead(part: ContextPart, path: readonly string[], attr: string): boolean {
    let raw: JsonValue | undefined = this.#part(part);
    for (const name of path) raw = this.#step(raw, name, path, part);
    return Object.hasOwn(this.#record(raw, path, part), attr);
  }

  #part(part: ContextPart): JsonObject {
    return part === "arguments" ? this.input.arguments : (this.input.forwarded ?? NOTHING);
  }

  #step(raw: JsonValue | undefined, name: string, path: readonly string[], part: ContextPart): JsonValue | undefined {
    const record = this.#record(raw, path, part);
    if (!Object.hasOwn(record, name)) throw new EvaluationError(`${noun(part)} ${path.join(".")} is missing`);
    return record[name];
  }

  #record(raw: JsonValue | undefined, path: readonly string[], part: ContextPart): JsonObject {
    if (typeof raw === "object" && raw !== null && !Array.isArray(raw)) return raw;
    throw new EvaluationError(`${noun(part)} ${path.join(".")} cannot be read: what should hold it is no object`);
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
        ["approved", this.approved],
        ["transport", this.input.transport],
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
    const { id, scope = [] } = this.input.resource;
    const slash = id.indexOf("/");
    if (attr === "app") return id.slice(0, slash);
    if (attr === "agent") return id.slice(slash + 1);
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
  return part === "arguments" ? "argument" : "forwarded field";
}

function same(a: Entity, b: Entity): boolean {
  return a.id === b.id && a.type === b.type;
}
