// Questions from a server to the person, the model or the machine behind this client. The same handlers answer
// them whether they come as requests (handshake revisions) or inside an answer (2026-07-28).

import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../index.js";
import { elicitationModes, eraOf, type RevisionName } from "./revision.js";

export interface ElicitationResult {
  action: "accept" | "decline" | "cancel";
  content?: JsonObject;
  [extra: string]: unknown;
}

export interface InputContext {
  /** Aborted when the server takes its question back or the answer took too long. */
  readonly signal: AbortSignal;
}

export interface ElicitationContext extends InputContext {
  /** What was filled in, completed by the defaults that the requested schema declares. */
  withDefaults(content?: JsonObject): JsonObject;
}

export interface Root {
  uri: string;
  name?: string;
  _meta?: JsonObject;
}

export interface InputHandlers {
  elicitation?: (params: JsonObject, context: ElicitationContext) => ElicitationResult | Promise<ElicitationResult>;
  /** Declares that the handler can also show a URL to a person; forms are always declared. */
  elicitsUrls?: boolean;
  sampling?: (params: JsonObject, context: InputContext) => JsonObject | Promise<JsonObject>;
  roots?: readonly Root[] | (() => readonly Root[] | Promise<readonly Root[]>);
}

/** The capabilities that follow from the handlers, in the words of the revision. */
export function clientCapabilities(handlers: InputHandlers, more: JsonObject, revision: RevisionName): JsonObject {
  const capabilities: JsonObject = {};
  const modes = elicitationModes(revision);
  if (handlers.sampling) capabilities.sampling = {};
  if (handlers.roots) capabilities.roots = eraOf(revision) === "legacy" ? { listChanged: true } : {};
  if (handlers.elicitation && modes === "form") capabilities.elicitation = {};
  if (handlers.elicitation && modes === "both") {
    capabilities.elicitation = { form: {}, ...(handlers.elicitsUrls ? { url: {} } : {}) };
  }
  return { ...capabilities, ...more };
}

/** Answers one question, or throws a Fault that says why there is no answer. */
export async function answerInput(
  handlers: InputHandlers,
  method: string,
  params: JsonObject,
  signal: AbortSignal,
): Promise<JsonObject> {
  switch (method) {
    case "elicitation/create":
      return elicit(handlers, params, signal);
    case "sampling/createMessage":
      if (!handlers.sampling) break;
      return handlers.sampling(params, { signal });
    case "roots/list":
      if (!handlers.roots) break;
      return {
        roots: (typeof handlers.roots === "function" ? await handlers.roots() : handlers.roots) as unknown as JsonValue,
      };
  }
  throw new Fault("MethodNotFound", `this client does not answer \`${method}\``);
}

async function elicit(handlers: InputHandlers, params: JsonObject, signal: AbortSignal): Promise<JsonObject> {
  if (!handlers.elicitation) throw new Fault("MethodNotFound", "this client does not answer `elicitation/create`");
  if (params.mode === "url" && !handlers.elicitsUrls) {
    throw new Fault("InvalidParams", "this client did not declare that it can show a URL", { field: "mode" });
  }
  const withDefaults = (content: JsonObject = {}): JsonObject => applyDefaults(params.requestedSchema, content);
  return (await handlers.elicitation(params, { signal, withDefaults })) as unknown as JsonObject;
}

/** Fills in what the schema has a default for and the content does not have. Elicitation schemas are flat. */
function applyDefaults(requestedSchema: unknown, content: JsonObject): JsonObject {
  const properties = isJsonObject(requestedSchema) ? requestedSchema.properties : undefined;
  if (!isJsonObject(properties)) return content;
  const defaults = Object.entries(properties).flatMap(([name, schema]): [string, JsonValue][] =>
    isJsonObject(schema) && schema.default !== undefined ? [[name, structuredClone(schema.default)]] : [],
  );
  // By entries, so that a property named `__proto__` stays a property.
  return Object.fromEntries([...defaults, ...Object.entries(content)]);
}
