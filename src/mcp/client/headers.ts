// What 2026-07-28 mirrors from a request's body into HTTP headers, so that proxies can route without reading bodies.
// The body stays the truth; a tool whose declarations are wrong cannot be called over HTTP at all.

import { isJsonObject, type JsonObject, type JsonValue } from "../index.js";

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** The parameter that names what a request is about, by method. */
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
  ["tasks/get", "taskId"],
  ["tasks/update", "taskId"],
  ["tasks/cancel", "taskId"],
]);

/** What a request is about: the name of a tool or a prompt, the URI of a resource, the id of a task. */
export function nameIn(method: string, params: JsonObject): string | undefined {
  const key = NAMED_BY.get(method);
  const name = key === undefined ? undefined : params[key];
  return typeof name === "string" ? name : undefined;
}

/** One parameter to mirror: where it stands in the arguments, and the header it goes to. */
interface MirroredParam {
  readonly path: readonly string[];
  readonly header: string;
}

export type HeaderPlan = { ok: true; params: readonly MirroredParam[] } | { ok: false; reason: string };

const NO_PARAMS: HeaderPlan = { ok: true, params: [] };
const MAX_NODES = 20_000;
const MAX_PATH = 64;
const MIRRORED_TYPES = new Set<JsonValue | undefined>(["string", "integer", "boolean"]);
/** Values of these are data: a key named `x-mcp-header` in them declares nothing. */
const DATA_KEYWORDS = new Set(["const", "enum", "default", "examples", "x-mcp-header", "properties"]);
/** Values of these map names to schemas, so their own keys are no keywords. */
const NAMED_SCHEMAS = new Set(["$defs", "definitions", "patternProperties", "dependentSchemas"]);

interface Visit {
  readonly schema: JsonValue;
  readonly path: readonly string[];
  /** Reached by `properties` keys alone, which is the only place a declaration may stand. */
  readonly reachable: boolean;
}

/** Reads the `x-mcp-header` declarations of an input schema, or says which of them is wrong. */
export function planHeaders(inputSchema: unknown): HeaderPlan {
  if (!isJsonObject(inputSchema)) return NO_PARAMS;
  const params: MirroredParam[] = [];
  const taken = new Set<string>();
  const todo: Visit[] = [{ schema: inputSchema, path: [], reachable: true }];
  for (let visited = 0; todo.length > 0; visited++) {
    if (visited > MAX_NODES) return { ok: false, reason: `the schema has more than ${MAX_NODES} parts` };
    const visit = todo.pop() as Visit;
    if (visit.path.length > MAX_PATH) return { ok: false, reason: `properties nest deeper than ${MAX_PATH} levels` };
    if (Array.isArray(visit.schema)) {
      for (const item of visit.schema) todo.push({ schema: item, path: visit.path, reachable: false });
    } else if (isJsonObject(visit.schema)) {
      const reason = declared(visit, visit.schema, params, taken);
      if (reason !== undefined) return { ok: false, reason };
      pushChildren(todo, visit, visit.schema);
    }
  }
  return params.length === 0 ? NO_PARAMS : { ok: true, params };
}

function declared(visit: Visit, schema: JsonObject, params: MirroredParam[], taken: Set<string>): string | undefined {
  if (!Object.hasOwn(schema, "x-mcp-header")) return undefined;
  const name = schema["x-mcp-header"];
  const where = visit.path.length === 0 ? "the schema itself" : `property \`${visit.path.join(".")}\``;
  if (!visit.reachable || visit.path.length === 0) {
    return `${where}: x-mcp-header may stand only on properties reached by \`properties\` alone`;
  }
  if (typeof name !== "string" || !TOKEN.test(name)) {
    return `${where}: x-mcp-header ${JSON.stringify(name)} is not an HTTP header name`;
  }
  if (!MIRRORED_TYPES.has(schema.type)) {
    return `${where}: x-mcp-header needs type string, integer or boolean, not ${JSON.stringify(schema.type) ?? "none"}`;
  }
  if (taken.has(name.toLowerCase())) return `${where}: x-mcp-header ${JSON.stringify(name)} is declared twice`;
  taken.add(name.toLowerCase());
  params.push({ path: visit.path, header: `mcp-param-${name}` });
  return undefined;
}

function pushChildren(todo: Visit[], visit: Visit, schema: JsonObject): void {
  if (isJsonObject(schema.properties)) {
    for (const [key, child] of Object.entries(schema.properties)) {
      todo.push({ schema: child, path: [...visit.path, key], reachable: visit.reachable });
    }
  }
  for (const [keyword, value] of Object.entries(schema)) {
    if (DATA_KEYWORDS.has(keyword)) continue;
    const children = NAMED_SCHEMAS.has(keyword) && isJsonObject(value) ? Object.values(value) : [value];
    for (const child of children) todo.push({ schema: child, path: visit.path, reachable: false });
  }
}

/** The headers for one call. A value that is absent, null or of another type has no header. */
export function paramHeaders(params: readonly MirroredParam[], args: JsonObject): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { path, header } of params) {
    const value = valueAt(args, path);
    if (typeof value === "string") headers[header] = value;
    else if (typeof value === "boolean") headers[header] = String(value);
    else if (typeof value === "number" && Number.isSafeInteger(value)) headers[header] = String(value);
  }
  return headers;
}

function valueAt(root: JsonObject, path: readonly string[]): JsonValue | undefined {
  let value: JsonValue | undefined = root;
  for (const key of path) {
    if (!isJsonObject(value) || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}
