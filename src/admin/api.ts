// Serves the operations of the table: finds the operation of a request, checks who may use it, what it was given and for
// which application, records a change before it is made, and leaves arguments out for those who may not see them.

import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Ledger } from "../ledger/index.js";
import { Fault, isJsonObject, type JsonObject, type JsonValue, pathText, type ShapeProblem } from "../mcp/index.js";
import { type AdminCaller, mayUse, seesArguments } from "./caller.js";
import { readJson } from "./exchange.js";
import { OPERATIONS, type OperationInput, type OperationResult } from "./operations.js";
import { type OperationName, type OperationRoute, ROUTES } from "./routes.js";

export interface OperationExchange {
  readonly by: AdminCaller;
  /** On record for what changes. */
  readonly actor: string;
  readonly traceId: string;
}

type Handler<N extends OperationName> = (
  input: OperationInput<N>,
  exchange: OperationExchange,
) => Promise<OperationResult<N>> | OperationResult<N>;

/** What implements the operations; one that is not here is not served. */
export type OperationHandlers = { readonly [N in OperationName]?: Handler<N> };

/** Their handlers record with more detail than is known here. */
const RECORDED_BY_HANDLER: ReadonlySet<OperationName> = new Set(["approve", "deny", "approveThese", "halt", "resume"]);
const MAX_BODY_BYTES = 16 * 1024;
/** What is given policy files, documents or workflows. */
const LARGE_BODIES: ReadonlySet<OperationName> = new Set([
  "activatePolicies",
  "checkPolicies",
  "checkWorkflow",
  "comparePolicies",
  "putDraft",
  "putSecret",
  "putServer",
  "tryCall",
]);
const MAX_LARGE_BODY_BYTES = 4 * 1024 * 1024;
const MAX_DEPTH = 64;

interface Place {
  readonly pattern: RegExp;
  readonly fields: readonly string[];
  readonly byMethod: Map<string, OperationName>;
}

const PLACES: readonly Place[] = placesOf();

function placesOf(): Place[] {
  const places = new Map<string, Place>();
  for (const [name, { method, path }] of Object.entries(ROUTES) as [OperationName, OperationRoute][]) {
    const fields: string[] = [];
    const pattern = path.replace(/\./g, "\\.").replace(/\{(\w+)\}/g, (_all, field: string) => {
      fields.push(field);
      return "([^/]{1,2048})";
    });
    const place = places.get(path) ?? { pattern: new RegExp(`^${pattern}$`), fields, byMethod: new Map() };
    place.byMethod.set(method, name);
    places.set(path, place);
  }
  // A path with fewer fields is the more exact one: `/versions` is not a name.
  return [...places.values()].sort((a, b) => a.fields.length - b.fields.length);
}

export interface FoundOperation {
  readonly name: OperationName;
  readonly route: OperationRoute;
  readonly inPath: JsonObject;
}

/** The operation at this path, or the methods that have one. */
export function findOperation(
  method: string | undefined,
  path: string,
  isServed: (name: OperationName) => boolean,
): FoundOperation | { readonly allowed: readonly string[] } | undefined {
  for (const { pattern, fields, byMethod } of PLACES) {
    const match = pattern.exec(path);
    if (!match) continue;
    const served = [...byMethod].filter(([, name]) => isServed(name));
    if (served.length === 0) continue;
    const name = served.find(([each]) => each === method)?.[1];
    if (name === undefined) return { allowed: served.map(([each]) => each) };
    const inPath: JsonObject = {};
    for (const [i, field] of fields.entries()) inPath[field] = decoded(match[i + 1] as string);
    return { name, route: ROUTES[name], inPath };
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new Fault("InvalidParams", "the path is not valid percent-encoding");
  }
}

/** Reads and checks what the operation was given; for a credential of one application, it is about that one. */
export async function readInput(
  { name, route, inPath }: FoundOperation,
  request: IncomingMessage,
  by: AdminCaller,
): Promise<unknown> {
  const hasBody = route.method === "POST" || route.method === "PUT";
  const maxBytes = LARGE_BODIES.has(name) ? MAX_LARGE_BODY_BYTES : MAX_BODY_BYTES;
  const rest = hasBody ? await readJson(request, maxBytes, MAX_DEPTH) : queryOf(name, request.url ?? "");
  const input = narrowed(name, { ...rest, ...inPath }, by);
  const problems: ShapeProblem[] = [];
  const checked = OPERATIONS[name].input.check(input, [], problems);
  const [first] = problems;
  if (first === undefined && checked !== undefined) return checked;
  const field = pathText(first?.path ?? []);
  // A name that cannot be one is a name of nothing.
  if (Object.hasOwn(inPath, String(first?.path[0])))
    throw new Fault("ResourceNotFound", "there is nothing at this path");
  throw new Fault("InvalidParams", `\`${field.slice(0, 128)}\` ${first?.message ?? "is not valid"}`, {
    field: field.slice(0, 128),
  });
}

function propertiesOf(name: OperationName): Record<string, JsonObject> {
  return (OPERATIONS[name].input.schema.properties ?? {}) as Record<string, JsonObject>;
}

function queryOf(name: OperationName, url: string): JsonObject {
  const properties = propertiesOf(name);
  const found: JsonObject = {};
  for (const [field, text] of new URLSearchParams(url.split("?")[1] ?? "")) {
    const type = Object.hasOwn(properties, field) ? properties[field]?.type : undefined;
    found[field] = type === "integer" && /^-?\d{1,16}$/.test(text) ? Number(text) : text;
  }
  return found;
}

/** INVARIANT: an operation with an `app` never gets another one than that of the credential. */
function narrowed(name: OperationName, input: JsonObject, { app }: AdminCaller): JsonObject {
  if (app === undefined || !Object.hasOwn(propertiesOf(name), "app")) return input;
  if (input.app !== undefined && input.app !== app) {
    throw new Fault("ResourceNotFound", "there is no such application");
  }
  return { ...input, app };
}

export function checkMayUse(by: AdminCaller, name: OperationName): void {
  const route: OperationRoute = ROUTES[name];
  if (mayUse(by, route)) return;
  const roles = route.roles === "anyone" ? [] : route.roles;
  throw new Fault("AuthorizationError", `\`${name}\` is for the role ${roles.join(" or ")}`, {
    rule: "admin.role",
    suggestions: [`This credential has the role ${by.roles.join(", ") || "of no one"}`],
  });
}

/** INVARIANT: durable before the change. No record, no effect. */
export async function recordWrite(
  ledger: Pick<Ledger, "append"> | undefined,
  name: OperationName,
  input: JsonObject,
  { actor, traceId }: OperationExchange,
): Promise<void> {
  const route: OperationRoute = ROUTES[name];
  if (!route.writes || RECORDED_BY_HANDLER.has(name)) return;
  try {
    if (!ledger) throw new Error("no ledger is configured");
    await ledger.append({ kind: "admin", actor, action: name, detail: { ...shortened(input), trace: traceId } });
  } catch (error) {
    throw new Fault("AuditFailure", `the change did not take effect: ${(error as Error).message}`, {
      cause: error,
      suggestions: ["Make the ledger writable, then try again"],
    });
  }
}

const MAX_RECORDED_CHARS = 512;

/** Secrets are never recorded, and long texts by their hash. */
function shortened(input: JsonObject): JsonObject {
  const detail: JsonObject = {};
  for (const [field, value] of Object.entries(input)) {
    if (field === "value" || value === undefined) continue;
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const isPlain = text.length <= MAX_RECORDED_CHARS && field !== "entry";
    detail[field] = isPlain ? value : { sha256: createHash("sha256").update(text).digest("hex"), chars: text.length };
  }
  return detail;
}

const ARGUMENTS: ReadonlySet<string> = new Set(["arguments", "args", "forwarded", "arguments_preview", "test"]);

/** The same result without what callers sent, for those who may not see it. */
export function withoutArguments(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(withoutArguments);
  if (!isJsonObject(value)) return value;
  const kept: JsonObject = {};
  for (const [field, each] of Object.entries(value)) {
    if (field === "arguments_preview" || field === "forwarded") kept[field] = "";
    else if (ARGUMENTS.has(field)) continue;
    else if (field === "fixed") kept[field] = {};
    else kept[field] = field === "values" ? [] : withoutArguments(each as JsonValue);
  }
  return kept;
}

export function shownTo(by: AdminCaller, name: OperationName, result: object): object {
  const route: OperationRoute = ROUTES[name];
  return route.showsArguments && !seesArguments(by) ? (withoutArguments(result as JsonObject) as JsonObject) : result;
}
