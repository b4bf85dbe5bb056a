// From an OpenAPI 3.x document to tools: each operation becomes a tool whose input schema is that of its parameters and its
// body. Schemas are carried over as they are written; what OpenAPI 3.0 writes in its own way is written as JSON Schema.

import { isJsonObject, isSliceOver, type JsonObject, type JsonValue, nextSlice, parsedBytes } from "../../mcp/index.js";
import { RESERVED_HEADERS } from "../../mcp/session/index.js";
import type { OperationChoice } from "../types.js";

export type ParameterPlace = "path" | "query" | "header" | "cookie";

export interface Parameter {
  readonly name: string;
  readonly in: ParameterPlace;
  /** The property of the tool's arguments. */
  readonly property: string;
  readonly style: string;
  readonly explode: boolean;
  /** The value is sent as JSON. */
  readonly isJson: boolean;
}

export interface ApiOperation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  /** The media type of its body; undefined without one. */
  readonly body: string | undefined;
  readonly definition: JsonObject;
}

export interface OperationsRead {
  readonly operations: ReadonlyMap<string, ApiOperation>;
  /** Why an operation is not a tool. */
  readonly left: readonly { readonly operation: string; readonly why: string }[];
  /** What the definitions cost in memory. */
  readonly bytes: number;
}

/** A document may have operations that carry the same large schema, each of them. */
export interface OperationBounds {
  readonly maxOperations: number;
  readonly maxBytes: number;
}

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const MAX_NAME = 64;
const MAX_ID = 1_000;
const MAX_DEPTH = 64;
const MAX_DESCRIPTION = 4_000;
/** References in what one tool carries along; where there are more, the API alone decides about the rest. */
const MAX_CARRIED = 1_500;
const MAX_REFERENCES = 16;

/** In slices. Throws a TypeError for what is not an OpenAPI 3 document, and for one whose tools would be over the bounds. */
export async function readOperations(
  document: JsonValue,
  choice: OperationChoice,
  bounds: OperationBounds,
): Promise<OperationsRead> {
  if (!isJsonObject(document) || typeof document.openapi !== "string" || !/^3\./.test(document.openapi)) {
    throw new TypeError("the document is not OpenAPI 3: it has no field `openapi: 3.x`");
  }
  const isOld = document.openapi.startsWith("3.0");
  const operations = new Map<string, ApiOperation>();
  const left: { operation: string; why: string }[] = [];
  const names = new UniqueNames();
  const cost = new Cost(bounds.maxBytes);
  for (const [path, found] of Object.entries(objectIn(document.paths))) {
    const item = resolved(document, found);
    for (const method of METHODS) {
      if (!isJsonObject(item[method])) continue;
      const operation = item[method];
      const id = typeof operation.operationId === "string" ? operation.operationId : `${method}_${path}`;
      const label = `${method.toUpperCase()} ${path}`;
      const wanted = (Object.hasOwn(choice.names, id) ? (choice.names[id] as string) : id)
        .slice(0, MAX_ID)
        .replace(/[^A-Za-z0-9_.-]+/g, "_");
      const name = names.free(wanted.replace(/^_+|_+$/g, "").slice(0, MAX_NAME) || "operation", MAX_NAME);
      if (!choice.isIncluded([id, name, label])) continue;
      if (operations.size + left.length >= bounds.maxOperations) {
        throw new TypeError(`it has more than ${bounds.maxOperations} operations; choose some with \`include\``);
      }
      try {
        operations.set(name, operationOf({ document, isOld, path, method, item, operation, name, cost }));
        names.take(name);
      } catch (error) {
        if (error instanceof OverCost) throw error;
        left.push({ operation: label.slice(0, MAX_ID), why: (error as Error).message.slice(0, MAX_ID) });
      }
      if (isSliceOver()) await nextSlice();
    }
    if (isSliceOver()) await nextSlice();
  }
  return { operations, left, bytes: cost.bytes };
}

class OverCost extends TypeError {}

/** What the definitions of all tools cost, counted while they are made. */
class Cost {
  bytes = 0;
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  add(chars: number): void {
    this.bytes += parsedBytes(chars, 1);
    if (this.bytes <= this.#max) return;
    const size = `the definitions of its tools are more than ${this.#max} bytes`;
    throw new OverCost(`${size}; choose operations with \`include\``);
  }

  addAll(value: JsonValue, depth = 0): void {
    this.add(typeof value === "string" ? value.length : 0);
    if (typeof value !== "object" || value === null) return;
    checkDepth(depth);
    for (const [key, each] of Object.entries(value)) {
      this.add(key.length);
      this.addAll(each, depth + 1);
    }
  }
}

function checkDepth(depth: number): void {
  if (depth > MAX_DEPTH) throw new TypeError(`its schemas are deeper than ${MAX_DEPTH} levels`);
}

/** Names that are not taken yet: the one that is wanted, or it with a number. */
class UniqueNames {
  readonly #taken = new Set<string>();
  readonly #counts = new Map<string, number>();

  take(name: string): void {
    this.#taken.add(name);
  }

  free(wanted: string, maxChars = Number.POSITIVE_INFINITY): string {
    let name = wanted;
    for (let count = this.#counts.get(wanted) ?? 2; this.#taken.has(name); count++) {
      const end = `_${count}`;
      name = `${wanted.slice(0, maxChars - end.length)}${end}`;
      this.#counts.set(wanted, count);
    }
    return name;
  }
}

interface Source {
  readonly document: JsonObject;
  readonly isOld: boolean;
  readonly path: string;
  readonly method: string;
  readonly item: JsonObject;
  readonly operation: JsonObject;
  readonly name: string;
  readonly cost: Cost;
}

function operationOf(source: Source): ApiOperation {
  const { document, method, path, operation, item, name, cost } = source;
  const schemas = new Schemas(document, source.isOld, cost);
  cost.add(path.length);
  const properties: JsonObject = {};
  const required: string[] = [];
  const parameters: Parameter[] = [];
  for (const parameter of parametersOf(document, item, operation, cost)) {
    const place = parameter.in as ParameterPlace;
    const own = String(parameter.name);
    if (place === "header" && RESERVED_HEADERS.has(own.toLowerCase())) continue;
    const property = Object.hasOwn(properties, own) ? `${own}_in_${place}` : own;
    const isJson = isJsonObject(parameter.content);
    const content = isJson ? Object.values(objectIn(parameter.content))[0] : parameter;
    properties[property] = described(schemas.carried(objectIn(content).schema), parameter.description);
    if (parameter.required === true || place === "path") required.push(property);
    const style =
      typeof parameter.style === "string"
        ? parameter.style
        : place === "query" || place === "cookie"
          ? "form"
          : "simple";
    const explode = typeof parameter.explode === "boolean" ? parameter.explode : style === "form";
    parameters.push({ name: own, in: place, property, style, explode, isJson });
  }
  const undeclared = [...path.matchAll(/\{([^{}]+)\}/g)].map(([, own]) => own as string);
  for (const own of undeclared) {
    if (parameters.some((each) => each.in === "path" && each.name === own)) continue;
    const property = Object.hasOwn(properties, own) ? `${own}_in_path` : own;
    properties[property] = { type: "string" };
    required.push(property);
    parameters.push({ name: own, in: "path", property, style: "simple", explode: false, isJson: false });
  }
  const body = bodyOf(document, operation);
  if (body !== undefined) {
    properties.body = described(schemas.carried(body.schema), body.description);
    if (body.isRequired) required.push("body");
  }
  const definitions = schemas.definitions();
  const inputSchema: JsonObject = {
    type: "object",
    properties,
    ...(required.length > 0 ? { required } : {}),
    additionalProperties: false,
    ...(Object.keys(definitions).length > 0 ? { $defs: definitions } : {}),
  };
  const texts = [operation.summary, operation.description].filter((text) => typeof text === "string" && text !== "");
  const description = (texts.length > 0 ? texts.join("\n\n") : `${method.toUpperCase()} ${path}`).slice(
    0,
    MAX_DESCRIPTION,
  );
  const isRead = method === "get" || method === "head" || method === "options";
  const annotations: JsonObject = {
    readOnlyHint: isRead,
    ...(isRead
      ? {}
      : { destructiveHint: method === "delete", idempotentHint: method === "put" || method === "delete" }),
  };
  return { method, path, parameters, body: body?.type, definition: { name, description, inputSchema, annotations } };
}

/** The operation's own take the place of those of its path. */
function parametersOf(document: JsonObject, item: JsonObject, operation: JsonObject, cost: Cost): JsonObject[] {
  const found = new Map<string, JsonObject>();
  for (const list of [item.parameters, operation.parameters]) {
    for (const each of Array.isArray(list) ? list : []) {
      const parameter = resolved(document, each);
      cost.add(String(parameter.name).length + String(parameter.description ?? "").slice(0, MAX_DESCRIPTION).length);
      if (
        typeof parameter.name !== "string" ||
        parameter.name === "__proto__" ||
        !/^(path|query|header|cookie)$/.test(String(parameter.in))
      )
        continue;
      found.set(`${parameter.in} ${parameter.name}`, parameter);
    }
  }
  return [...found.values()];
}

interface Body {
  readonly type: string;
  readonly schema: JsonValue | undefined;
  readonly description: JsonValue | undefined;
  readonly isRequired: boolean;
}

/** JSON where it is taken, else what can be written from arguments. */
const BODIES = [
  /^application\/json\b/,
  /^application\/[^;]*\+json\b|^text\/json/,
  /^application\/x-www-form-urlencoded/,
  /^multipart\/form-data/,
  /^text\//,
];

function bodyOf(document: JsonObject, operation: JsonObject): Body | undefined {
  if (operation.requestBody === undefined) return undefined;
  const body = resolved(document, operation.requestBody);
  const content = objectIn(body.content);
  const types = Object.keys(content);
  if (types.length === 0) return undefined;
  const type =
    BODIES.flatMap((kind) => types.filter((each) => kind.test(each)))[0] ?? (types.includes("*/*") ? "*/*" : undefined);
  const isRequired = body.required === true;
  if (type === undefined) {
    if (!isRequired) return undefined;
    throw new TypeError(`its body is ${types[0]}, which cannot be written from arguments`);
  }
  const { schema } = objectIn(content[type]);
  return { type: type === "*/*" ? "application/json" : type, schema, description: body.description, isRequired };
}

function described(schema: JsonValue, description: JsonValue | undefined): JsonValue {
  if (typeof description !== "string" || !isJsonObject(schema) || schema.description !== undefined) return schema;
  return { ...schema, description: description.slice(0, MAX_DESCRIPTION) };
}

function objectIn(value: JsonValue | undefined): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** What a reference leads to. Only references inside the document are followed. */
function resolved(document: JsonObject, value: JsonValue | undefined): JsonObject {
  let at = value;
  for (let steps = 0; steps < MAX_REFERENCES && isJsonObject(at) && typeof at.$ref === "string"; steps++) {
    at = pointed(document, at.$ref);
  }
  return objectIn(at);
}

function pointed(document: JsonObject, reference: string): JsonValue | undefined {
  if (!reference.startsWith("#/"))
    throw new TypeError(`reference ${reference.slice(0, 100)} leads outside the document`);
  let at: JsonValue | undefined = document;
  for (const part of reference.slice(2).split("/")) {
    const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(at)) at = at[Number(key)];
    else at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return at;
}

/** Schemas of one tool: those that it refers to are carried along under `$defs`. */
class Schemas {
  readonly #document: JsonObject;
  readonly #isOld: boolean;
  readonly #cost: Cost;
  readonly #names = new Map<string, string>();
  readonly #free = new UniqueNames();
  readonly #definitions: JsonObject = {};
  #count = 0;

  constructor(document: JsonObject, isOld: boolean, cost: Cost) {
    this.#document = document;
    this.#isOld = isOld;
    this.#cost = cost;
  }

  definitions(): JsonObject {
    return this.#definitions;
  }

  carried(schema: JsonValue | undefined, depth = 0): JsonValue {
    checkDepth(depth);
    const inner = (value: JsonValue): JsonValue => this.carried(value, depth + 1);
    if (!isJsonObject(schema)) return schema === false ? false : {};
    if (typeof schema.$ref === "string") return this.#reference(schema);
    const out: JsonObject = {};
    this.#cost.add(0);
    for (const [keyword, value] of Object.entries(schema)) {
      if (ANNOTATIONS.has(keyword) || keyword.startsWith("x-") || keyword === "__proto__") continue;
      this.#cost.add(keyword.length);
      if (ONE.has(keyword)) out[keyword] = typeof value === "boolean" ? value : inner(value);
      else if (LIST.has(keyword) && Array.isArray(value)) out[keyword] = value.map(inner);
      else if (MAP.has(keyword) && isJsonObject(value)) {
        out[keyword] = Object.fromEntries(
          Object.entries(value).map(([name, each]) => {
            this.#cost.add(name.length);
            return [name, inner(each)];
          }),
        );
      } else {
        this.#cost.addAll(value);
        out[keyword] = value;
      }
    }
    return this.#isOld ? inJsonSchema(out) : out;
  }

  #reference({ $ref, ...beside }: JsonObject): JsonValue {
    if (++this.#count > MAX_CARRIED) return {};
    const reference = String($ref);
    this.#cost.add(reference.length);
    const known = this.#names.get(reference);
    const name = known ?? this.#nameFor(reference);
    if (known === undefined) {
      this.#names.set(reference, name);
      const target = pointed(this.#document, reference);
      if (target === undefined) throw new TypeError(`reference ${reference.slice(0, 100)} leads nowhere`);
      this.#definitions[name] = this.carried(target);
    }
    // In 3.0 what stands beside a reference counts for nothing.
    const rest = this.#isOld ? {} : (this.carried(beside) as JsonObject);
    return { ...rest, $ref: `#/$defs/${name}` };
  }

  #nameFor(reference: string): string {
    const last =
      reference
        .split("/")
        .at(-1)
        ?.replace(/[^A-Za-z0-9_.-]+/g, "_")
        .replace(/^_+/, "") || "schema";
    const name = this.#free.free(last);
    this.#free.take(name);
    return name;
  }
}

/** They say nothing of which values are valid, or say it to programs that generate code. */
const ANNOTATIONS = new Set([
  "example",
  "examples",
  "xml",
  "discriminator",
  "externalDocs",
  "$schema",
  "$id",
  "$anchor",
  "contentMediaType",
]);
const ONE = new Set([
  "additionalProperties",
  "items",
  "not",
  "if",
  "then",
  "else",
  "contains",
  "propertyNames",
  "unevaluatedProperties",
  "unevaluatedItems",
]);
const LIST = new Set(["allOf", "anyOf", "oneOf", "prefixItems"]);
const MAP = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);

/** OpenAPI 3.0 has `nullable`, and bounds that are exclusive by a flag. */
function inJsonSchema({ nullable, exclusiveMinimum, exclusiveMaximum, ...schema }: JsonObject): JsonObject {
  const out: JsonObject = { ...schema };
  if (exclusiveMinimum === true)
    [out.exclusiveMinimum, out.minimum] = [schema.minimum as JsonValue, undefined as never];
  if (exclusiveMaximum === true)
    [out.exclusiveMaximum, out.maximum] = [schema.maximum as JsonValue, undefined as never];
  if (typeof exclusiveMinimum === "number") out.exclusiveMinimum = exclusiveMinimum;
  if (typeof exclusiveMaximum === "number") out.exclusiveMaximum = exclusiveMaximum;
  for (const bound of ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
    if (out[bound] === undefined) delete out[bound];
  }
  if (nullable !== true) return out;
  if (Array.isArray(out.enum) && !out.enum.includes(null)) out.enum = [...out.enum, null];
  if (typeof out.type === "string") out.type = [out.type, "null"];
  else if (out.type === undefined && Object.keys(out).some((key) => LIST.has(key)))
    return { anyOf: [out, { type: "null" }] };
  return out;
}
