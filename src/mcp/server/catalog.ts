// The catalog: every tool with its schemas, tags, metadata and examples, in one JSON document.

import { DEFAULT_SCHEMA_LIMITS, SchemaDocument } from "../../schema/index.js";
import {
  ERRORS,
  type ErrorType,
  isJsonObject,
  isSliceOver,
  type JsonObject,
  type JsonValue,
  nextSlice,
} from "../index.js";
import { examples } from "./examples.js";
import type { JsonSchema, Tool, ToolDefinition } from "./types.js";

export interface CatalogOptions {
  version?: string;
  /** The time written into the catalog. */
  now?: Date;
  /** Examples for each tool; 0 for none. */
  examples?: number;
}

export interface CatalogEntry extends ToolDefinition {
  tags: string[];
  metadata: JsonObject;
  examples: JsonValue[];
}

export interface Catalog {
  tools: CatalogEntry[];
  version: string;
  generated_at: string;
}

export function catalog(tools: Iterable<Tool>, options: CatalogOptions = {}): Catalog {
  const { version = "1.0.0", now = new Date(), examples: count = 2 } = options;
  return {
    tools: [...tools].map((tool) => entryOf(tool, count)),
    version,
    generated_at: now.toISOString(),
  };
}

function entryOf(tool: Tool, count: number): CatalogEntry {
  return {
    ...tool.definition,
    tags: [...tool.tags],
    metadata: { ...tool.metadata },
    examples: count === 0 ? [] : examples(tool.definition.inputSchema, count),
  };
}

/** The same document as text, built in slices. Undefined when it would be longer than `maxChars`. */
export async function catalogText(
  tools: Iterable<Tool>,
  options: CatalogOptions,
  maxChars: number,
): Promise<string | undefined> {
  const { tools: _none, ...head } = catalog([], options);
  let entries = "";
  for (const tool of tools) {
    entries += `${entries === "" ? "" : ","}${JSON.stringify(entryOf(tool, options.examples ?? 2))}`;
    if (entries.length > maxChars) return undefined;
    if (isSliceOver()) await nextSlice();
  }
  return `{"tools":[${entries}],${JSON.stringify(head).slice(1)}`;
}

export interface OpenApiOptions {
  title?: string;
  version?: string;
  description?: string;
  /** Base addresses, such as `https://gateway.example.com`. */
  servers?: readonly string[];
}

export function openApi(tools: Iterable<Tool>, options: OpenApiOptions = {}): JsonObject {
  const { title = "Tools", version = "1.0.0", description, servers = [] } = options;
  const paths: JsonObject = {};
  const schemas: JsonObject = { ...SHARED_SCHEMAS };
  for (const tool of tools) {
    const key = componentKey(tool.definition.name, schemas);
    Object.assign(schemas, schemasOf(tool, key));
    paths[pathOf(tool)] = { post: operation(tool, key) };
  }
  return {
    openapi: "3.1.0",
    info: { title, version, ...(description === undefined ? {} : { description }) },
    ...(servers.length === 0 ? {} : { servers: servers.map((url) => ({ url })) }),
    paths,
    components: {
      schemas,
      responses: errorResponses(),
      securitySchemes: { bearer: { type: "http", scheme: "bearer", description: "An API key or an access token" } },
    },
    security: [{ bearer: [] }, {}],
  };
}

/** The same document as text, built in slices. Undefined when it would be longer than `maxChars`. */
export async function openApiText(
  tools: Iterable<Tool>,
  options: OpenApiOptions,
  maxChars: number,
): Promise<string | undefined> {
  const { paths: _paths, components, ...head } = openApi([], options);
  const { schemas: shared, ...others } = components as JsonObject;
  const taken: JsonObject = { ...(shared as JsonObject) };
  let paths = "";
  let schemas = inside(shared as JsonObject);
  for (const tool of tools) {
    const key = componentKey(tool.definition.name, taken);
    const own = schemasOf(tool, key);
    for (const name of Object.keys(own)) taken[name] = true;
    schemas += `,${inside(own)}`;
    paths += `${paths === "" ? "" : ","}${inside({ [pathOf(tool)]: { post: operation(tool, key) } })}`;
    if (paths.length + schemas.length > maxChars) return undefined;
    if (isSliceOver()) await nextSlice();
  }
  return `{${inside(head)},"paths":{${paths}},"components":{"schemas":{${schemas}},${inside(others)}}}`;
}

/** The members of an object as JSON, without its braces. */
function inside(object: JsonObject): string {
  return JSON.stringify(object).slice(1, -1);
}

function pathOf({ definition }: Tool): string {
  return `/tools/${encodeURIComponent(definition.name)}`;
}

function schemasOf({ definition }: Tool, key: string): JsonObject {
  const { inputSchema, outputSchema } = definition;
  const schemas: JsonObject = { [`${key}.input`]: relocated(inputSchema, `#/components/schemas/${key}.input`) };
  if (outputSchema !== undefined) {
    schemas[`${key}.output`] = relocated(outputSchema, `#/components/schemas/${key}.output`);
  }
  return schemas;
}

function operation({ definition, tags, metadata }: Tool, key: string): JsonObject {
  const shown = examples(definition.inputSchema, 2);
  const result: JsonValue =
    definition.outputSchema === undefined
      ? reference("schemas", "ToolResult")
      : {
          allOf: [
            reference("schemas", "ToolResult"),
            { type: "object", properties: { structuredContent: reference("schemas", `${key}.output`) } },
          ],
        };
  return {
    operationId: key,
    summary: definition.title ?? definition.name,
    ...(definition.description === undefined ? {} : { description: definition.description }),
    ...(tags.length === 0 ? {} : { tags: [...tags] }),
    ...(metadata.deprecated === true ? { deprecated: true } : {}),
    requestBody: {
      required: true,
      content: {
        "application/json": {
          schema: reference("schemas", `${key}.input`),
          ...(shown.length === 0
            ? {}
            : { examples: Object.fromEntries(shown.map((value, index) => [`example${index + 1}`, { value }])) }),
        },
      },
    },
    responses: {
      "200": {
        description: "The tool ran; `isError` says whether it failed",
        content: { "application/json": { schema: result } },
      },
      ...Object.fromEntries([...STATUSES.keys()].map((status) => [status, reference("responses", `Error${status}`)])),
    },
  };
}

/** HTTP statuses of the error table that a call can end with, each with the errors behind it. */
const STATUSES = statuses();

function statuses(): Map<string, ErrorType[]> {
  const found = new Map<string, ErrorType[]>();
  for (const [type, { http }] of Object.entries(ERRORS) as [ErrorType, (typeof ERRORS)[ErrorType]][]) {
    if (http < 400 || http === 499) continue;
    found.set(String(http), [...(found.get(String(http)) ?? []), type]);
  }
  return new Map([...found].sort(([a], [b]) => Number(a) - Number(b)));
}

function errorResponses(): JsonObject {
  return Object.fromEntries(
    [...STATUSES].map(([status, types]) => [
      `Error${status}`,
      {
        description: [...new Set(types.map((type) => ERRORS[type].message))].join("; "),
        content: {
          "application/json": {
            schema: { type: "object", properties: { error: reference("schemas", "Error") }, required: ["error"] },
          },
        },
      },
    ]),
  );
}

const SHARED_SCHEMAS: Readonly<JsonObject> = {
  ToolResult: {
    type: "object",
    properties: {
      content: {
        type: "array",
        items: { type: "object", properties: { type: { type: "string" } }, required: ["type"] },
      },
      structuredContent: true,
      isError: { type: "boolean" },
      _meta: { type: "object" },
    },
    required: ["content"],
  },
  Error: {
    type: "object",
    properties: {
      code: {
        type: "string",
        description: "Stable name of the error",
        enum: [...new Set(Object.values(ERRORS).map((row) => row.code))],
      },
      error_type: { type: "string", enum: Object.keys(ERRORS) },
      reason: { type: "string" },
      trace_id: { type: "string" },
      retryable: { type: "boolean" },
      suggestions: { type: "array", items: { type: "string" } },
      documentation_url: { type: "string" },
      rule: { type: "string" },
      field: { type: "string" },
    },
    required: ["code", "error_type", "reason", "trace_id", "retryable", "suggestions", "documentation_url"],
  },
};

function reference(kind: "schemas" | "responses", name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` };
}

/** Component names allow no slash; a name that would collide gets a number. */
function componentKey(name: string, taken: JsonObject): string {
  const base = name.replaceAll("/", "_");
  let key = base;
  for (let n = 2; Object.hasOwn(taken, `${key}.input`) || Object.hasOwn(taken, key); n++) key = `${base}_${n}`;
  return key;
}

/**
 * A schema moved to another place. Its references count from its own root and may go by identifiers; in the new
 * document they all become pointers, and the identifiers, which would shift what pointers count from, are left out.
 */
function relocated(schema: JsonSchema, place: string): JsonValue {
  const document = new SchemaDocument(schema, DEFAULT_SCHEMA_LIMITS);
  const targets = new Map<JsonObject, string | undefined>();
  const pending = [document.root];
  for (let located = pending.pop(); located !== undefined; located = pending.pop()) {
    if (!isJsonObject(located.schema) || targets.has(located.schema)) continue;
    const reference = located.schema.$ref ?? located.schema.$dynamicRef;
    const target = typeof reference === "string" ? document.resolve(reference, located) : undefined;
    targets.set(located.schema, target?.pointer);
    if (target !== undefined) pending.push(target);
    for (const child of document.children(located)) pending.push(child);
  }
  return copy(schema);

  function copy(value: JsonValue): JsonValue {
    if (Array.isArray(value)) return value.map(copy);
    if (!isJsonObject(value)) return value;
    const isSchema = targets.has(value);
    const entries = Object.entries(value).filter(([key]) => !isSchema || !IDENTIFIERS.has(key));
    const copied = Object.fromEntries(entries.map(([key, child]) => [key, copy(child)]));
    const pointer = targets.get(value);
    if (pointer !== undefined) copied.$ref = place + encodeURI(pointer).replaceAll("#", "%23");
    return copied;
  }
}

const IDENTIFIERS = new Set(["$id", "$anchor", "$dynamicAnchor", "$dynamicRef"]);
