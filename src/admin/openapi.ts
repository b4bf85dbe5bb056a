// The OpenAPI 3.1 document of the admin API, made from the table of operations.

import type { JsonObject, JsonValue } from "../mcp/index.js";
import { OPERATIONS } from "./operations.js";
import { type OperationName, type OperationRoute, ROUTES } from "./routes.js";

const PARAMETER = /\{(\w+)\}/g;

/** The names of fields that stand in the path. */
export function pathFields(path: string): string[] {
  return [...path.matchAll(PARAMETER)].map(([, name]) => name as string);
}

export function openApiDocument(version: string): JsonObject {
  const paths: Record<string, JsonObject> = {};
  for (const name of Object.keys(ROUTES) as OperationName[]) {
    const { path, method } = ROUTES[name];
    paths[path] = { ...paths[path], [method.toLowerCase()]: operationOf(name) };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Portcullis admin API",
      version,
      description: "What the console and the command line use. Times are UTC; `next` of a page is opaque.",
    },
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "an operator token or an approver key" },
        session: { type: "apiKey", in: "cookie", name: "portcullis-PORT" },
        pageKey: { type: "apiKey", in: "header", name: "portcullis-page-key", description: "with the cookie" },
      },
      schemas: {
        Error: {
          type: "object",
          description: "why the request has no result",
          properties: { error: { type: "object", description: "the error, as `docs/errors.md` describes it" } },
          required: ["error"],
        },
      },
    },
  };
}

function operationOf(name: OperationName): JsonObject {
  const route: OperationRoute = ROUTES[name];
  const { about, input, result } = OPERATIONS[name];
  const { properties = {}, required = [] } = input.schema as {
    properties?: Record<string, JsonObject>;
    required?: readonly string[];
  };
  const inPath = pathFields(route.path);
  const hasBody = route.method === "POST" || route.method === "PUT";
  const others = Object.keys(properties).filter((field) => !inPath.includes(field));
  const inQuery = hasBody ? [] : others;
  const parameter = (field: string, place: string): JsonObject => ({
    name: field,
    in: place,
    required: required.includes(field),
    schema: properties[field] as JsonObject,
  });
  const body: JsonObject = {
    type: "object",
    properties: Object.fromEntries(others.map((field) => [field, properties[field] as JsonValue])),
    required: required.filter((field) => others.includes(field)),
    additionalProperties: false,
  };
  const roles = route.roles === "anyone" ? [] : [...route.roles];
  const contentType = name === "followEvents" ? "text/event-stream" : "application/json";
  return {
    operationId: name,
    summary: about,
    parameters: [
      ...inPath.map((field) => parameter(field, "path")),
      ...inQuery.map((field) => parameter(field, "query")),
    ],
    ...(hasBody ? { requestBody: { required: true, content: { "application/json": { schema: body } } } } : {}),
    responses: {
      "200": { description: about, content: { [contentType]: { schema: result.schema } } },
      default: {
        description: "an error",
        content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
      },
    },
    security: route.roles === "anyone" ? [] : [{ bearer: [] }, { session: [], pageKey: [] }],
    "x-roles": roles,
    ...(route.writes ? { "x-recorded": true } : {}),
  };
}
