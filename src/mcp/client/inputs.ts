// Questions from a server to the person, the model or the machine behind this client. The same handlers answer
// them whether they come as requests (handshake revisions) or inside an answer (2026-07-28).

import { Fault, isJsonObject, type JsonObject, type JsonValue, type Revision } from "../index.js";
import { ProtocolError } from "./errors.js";

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
export function clientCapabilities(handlers: InputHandlers, more: JsonObject, { name, era }: Revision): JsonObject {
  const capabilities: JsonObject = {};
  if (handlers.sampling) capabilities.sampling = {};
  if (handlers.roots) capabilities.roots = era === "legacy" ? { listChanged: true } : {};
  // 2025-03-26 has no elicitation; forms and URLs are told apart from 2025-11-25 on.
  if (handlers.elicitation && name === "2025-06-18") capabilities.elicitation = {};
  else if (handlers.elicitation && name !== "2025-03-26") {
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

interface RoundLimits {
  maxRounds: number;
  maxInputs: number;
}

interface RoundsOptions {
  method: string;
  limits: RoundLimits;
  /** Result types beyond the core's that the caller understands. */
  resultTypes: readonly string[];
  /** False in revisions whose answers have no result type: there every answer is the answer. */
  mayAsk: boolean;
  /** What a later round begins with: answers and state of the round before. Empty for the first. */
  start?: JsonObject;
  /** Sends the request with these parameters added. */
  send(extra: JsonObject): Promise<JsonObject>;
  answer(method: string, params: JsonObject): Promise<JsonObject>;
}

/** The only requests that a server may answer with questions. */
const MAY_ASK = new Set(["tools/call", "prompts/get", "resources/read"]);
const INPUTS = new Set(["elicitation/create", "sampling/createMessage", "roots/list"]);

export async function inRounds(options: RoundsOptions): Promise<JsonObject> {
  const { method, limits } = options;
  let extra: JsonObject = options.start ?? {};
  for (let round = 0; round <= limits.maxRounds; round++) {
    const result = await options.send(extra);
    if (!options.mayAsk) return result;
    const type = result.resultType ?? "complete";
    if (type === "complete" || options.resultTypes.includes(type as string)) return result;
    if (type !== "input_required" || !MAY_ASK.has(method)) {
      throw new ProtocolError(
        "InvalidRequest",
        `the server answered ${method} with resultType ${JSON.stringify(type)}, which this client did not agree to`,
        { data: result },
      );
    }
    extra = await nextRound(result, options);
  }
  throw new ProtocolError(
    "TooMany",
    `the server asked for input more than ${limits.maxRounds} times during one ${method}; raise limits.maxRounds if that is meant`,
  );
}

async function nextRound(result: JsonObject, options: RoundsOptions): Promise<JsonObject> {
  const { inputRequests, requestState } = result;
  const broken = (what: string): ProtocolError =>
    new ProtocolError("InvalidRequest", `the server's request for input is malformed: ${what}`, { data: result });
  if (inputRequests === undefined && requestState === undefined) throw broken("it asks nothing and carries no state");
  if (requestState !== undefined && typeof requestState !== "string") throw broken("`requestState` is not a string");
  const state: JsonObject = requestState === undefined ? {} : { requestState };
  if (inputRequests === undefined) return state;
  if (!isJsonObject(inputRequests)) throw broken("`inputRequests` is not an object");
  const questions = Object.entries(inputRequests);
  if (questions.length > options.limits.maxInputs) {
    throw broken(`${questions.length} questions, and the limit is ${options.limits.maxInputs}`);
  }
  const answers = questions.map(async ([key, question]): Promise<[string, JsonObject]> => {
    if (!isJsonObject(question) || typeof question.method !== "string" || !INPUTS.has(question.method)) {
      throw broken(`question \`${key}\` is none of ${[...INPUTS].join(", ")}`);
    }
    return [key, await options.answer(question.method, isJsonObject(question.params) ? question.params : {})];
  });
  return { ...state, inputResponses: Object.fromEntries(await Promise.all(answers)) };
}
