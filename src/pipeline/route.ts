// From a method and its parameters to what it is about, and which of the caller's parameters travel beside the arguments.
// A name that does not exist and one that the caller may not see take the same path and give the same answer. What does
// not travel is left out before the intent is made, so that rules, approvers and the server see the same.

import { Fault, isJsonObject, type JsonObject, META } from "../mcp/index.js";
import type { CallContext, Prompt, Tool, Validation } from "../mcp/server/index.js";
import { intentArguments, NOTHING_FORWARDED, type Principal } from "../policy/index.js";
import type { RunContext } from "./call-context.js";
import { bindingOf } from "./encrypted-state.js";
import type { InputRound } from "./execute.js";
import type { CallRequest, Pipeline, Relayed, Route, RouteTable } from "./types.js";

const VALID: Validation = { ok: true };
const valid = (): Validation => VALID;

export function routeFor(table: RouteTable, principal: Principal, method: string, params: JsonObject): Route {
  switch (method) {
    case "tools/call":
      return toolRoute(table, principal, stringField(params, "name"), argumentsOf(params));
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      return resourceRoute(table, principal, method, stringField(params, "uri"));
    case "prompts/get":
      return promptRoute(table, principal, stringField(params, "name"), argumentsOf(params));
    case "completion/complete":
      return completionRoute(table, principal, params);
    default:
      throw new Fault("MethodNotFound", `there is no method \`${clip(method)}\``);
  }
}

export function argumentsOf(params: JsonObject): JsonObject {
  if (params.arguments === undefined) return {};
  if (!isJsonObject(params.arguments)) {
    throw new Fault("InvalidParams", "`arguments` must be an object", { field: "arguments" });
  }
  return params.arguments;
}

export function stringField(params: JsonObject, field: string): string {
  const value = params[field];
  if (typeof value === "string") return value;
  throw new Fault("InvalidParams", `\`${field}\` must be a string`, { field });
}

/** The tool, by its name or its short name, when it is there and within this caller's capabilities. */
export function findTool(table: RouteTable, { tools: within }: Principal, name: string): Tool | undefined {
  const tool = toolNamed(table, name);
  return tool && (within?.has(tool.definition.name) ?? true) ? tool : undefined;
}

function toolNamed({ server: { tools, aliases } }: RouteTable, name: string): Tool | undefined {
  return tools.get(name) ?? tools.get(aliases?.get(name) ?? "");
}

export function visibleTool(table: RouteTable, principal: Principal, name: string): Tool {
  const tool = findTool(table, principal, name);
  if (tool) return tool;
  const known = toolNamed(table, name);
  const needsScope = known && principal.stepUp?.(known.definition.name);
  if (needsScope) throw needsScope;
  throw new Fault("ToolNotFound", `there is no tool \`${clip(name)}\``, {
    field: "name",
    suggestions: ["List the tools that can be called with `tools/list`"],
  });
}

function toolRoute(table: RouteTable, principal: Principal, name: string, args: JsonObject): Route {
  const tool = visibleTool(table, principal, name);
  const relayed = relayedBy(tool);
  return {
    type: "Tool",
    name: tool.definition.name,
    action: tool.definition.name,
    binding: relayed?.binding ?? `local:${table.server.info.name}`,
    server: relayed?.server ?? table.server.info.name,
    forwards: relayed?.forwards,
    definitionHash: tool.definitionHash,
    tags: tool.tags,
    readOnly: table.readOnlyTools.has(tool.definition.name),
    noGuardrailRequired: tool.noGuardrailRequired || table.unguardedTools.has(tool.definition.name),
    arguments: args,
    builtin: false,
    timeoutMs: tool.timeoutMs ?? table.limits.toolTimeoutMs,
    hasOutputSchema: tool.definition.outputSchema !== undefined,
    validate: (value) => tool.validate(value),
    validateOutput: (value) => tool.validateOutput(value),
    run: relayed
      ? (context) => relayed.relay(context)
      : (context) => tool.run(argumentsIn(context), context) as Promise<JsonObject>,
  };
}

/** Set on what an upstream server offers. */
export function relayedBy(thing: object | undefined): Relayed | undefined {
  return (thing as { relayed?: Relayed } | undefined)?.relayed;
}

/** The arguments that run are parsed from the text that was hashed. */
function argumentsIn(context: RunContext): JsonObject {
  return intentArguments(context.grant.intent);
}

/** A route to anything but a tool: without a schema, read-only, so no guardrail is required. */
function plainRoute(
  table: RouteTable,
  part: Pick<Route, "type" | "name" | "action" | "arguments" | "run">,
  relayed?: Relayed,
): Route {
  return {
    ...part,
    ...(relayed ? { run: (context: RunContext) => relayed.relay(context) } : {}),
    binding: relayed?.binding ?? `local:${table.server.info.name}`,
    server: relayed?.server ?? table.server.info.name,
    forwards: relayed?.forwards,
    definitionHash: "",
    tags: [],
    readOnly: true,
    noGuardrailRequired: true,
    builtin: false,
    timeoutMs: table.limits.toolTimeoutMs,
    hasOutputSchema: false,
    validate: valid,
    validateOutput: valid,
  };
}

function resourceRoute(table: RouteTable, principal: Principal, method: string, uri: string): Route {
  const found = mayRead(principal, uri) ? reader(table, uri) : undefined;
  if (!found) {
    throw new Fault("ResourceNotFound", `there is no resource \`${clip(uri)}\``, { field: "uri", extra: { uri } });
  }
  const base = { type: "Resource" as const, name: uri, action: method, arguments: { uri } };
  if (method !== "resources/read") {
    const route = plainRoute(table, { ...base, run: () => ({}) });
    return { ...route, ...originOf(found.relayed), builtin: method === "resources/unsubscribe" };
  }
  const { read } = found;
  return plainRoute(table, { ...base, run: (context) => read(context) as Promise<JsonObject> }, found.relayed);
}

function originOf(relayed: Relayed | undefined): Partial<Route> {
  return relayed ? { binding: relayed.binding, server: relayed.server, forwards: relayed.forwards } : {};
}

interface Readable {
  read(context: CallContext): Promise<unknown>;
  relayed?: Relayed;
}

function reader(table: RouteTable, uri: string): Readable | undefined {
  const { server } = table;
  const resource = server.resources.get(uri) ?? server.resourceAt?.(uri);
  if (resource) return { read: (context) => resource.read(uri, context), relayed: relayedBy(resource) };
  for (const template of server.templates) {
    const variables = template.match(uri);
    if (variables) return { read: (context) => template.read(uri, variables, context), relayed: relayedBy(template) };
  }
  return undefined;
}

/** Also for the text of a template: it is granted like the URIs it stands for. */
export function mayRead({ resources }: Principal, uri: string): boolean {
  return resources?.has(uri) ?? true;
}

export function mayGet({ prompts }: Principal, name: string): boolean {
  return prompts?.has(name) ?? true;
}

function promptNamed(table: RouteTable, principal: Principal, name: string): Prompt {
  const prompt = mayGet(principal, name) ? table.server.prompts.get(name) : undefined;
  if (!prompt) throw new Fault("PromptNotFound", `there is no prompt \`${clip(name)}\``, { field: "name" });
  return prompt;
}

function promptRoute(table: RouteTable, principal: Principal, name: string, args: JsonObject): Route {
  const prompt = promptNamed(table, principal, name);
  for (const argument of prompt.definition.arguments ?? []) {
    const value = args[argument.name];
    if (value === undefined ? argument.required : typeof value !== "string") {
      const problem = value === undefined ? "is required" : "must be a string";
      throw new Fault("InvalidParams", `argument \`${argument.name}\` of prompt \`${name}\` ${problem}`, {
        field: argument.name,
      });
    }
  }
  return plainRoute(
    table,
    {
      type: "Prompt",
      name,
      action: "prompts/get",
      arguments: args,
      run: (context) =>
        prompt.get(argumentsIn(context) as Record<string, string>, context) as unknown as Promise<JsonObject>,
    },
    relayedBy(prompt),
  );
}

const MAX_COMPLETIONS = 100;

function completionRoute(table: RouteTable, principal: Principal, params: JsonObject): Route {
  const ref = isJsonObject(params.ref) ? params.ref : {};
  const argument = isJsonObject(params.argument) ? params.argument : {};
  const asked = { name: stringField(argument, "name"), value: stringField(argument, "value") };
  const context = isJsonObject(params.context) ? params.context : {};
  const isPrompt = ref.type === "ref/prompt";
  if (!isPrompt && ref.type !== "ref/resource") {
    throw new Fault("InvalidParams", "`ref.type` must be ref/prompt or ref/resource", { field: "ref.type" });
  }
  const name = stringField(ref, isPrompt ? "name" : "uri");
  const about = isPrompt
    ? promptNamed(table, principal, name)
    : mayRead(principal, name)
      ? table.server.templates.find((template) => template.definition.uriTemplate === name)
      : undefined;
  return plainRoute(
    table,
    {
      type: isPrompt ? "Prompt" : "Resource",
      name,
      action: "completion/complete",
      arguments: { argument: asked, context },
      run: async () => {
        const found = (await about?.complete?.(asked, context as { arguments?: Record<string, string> })) ?? {
          values: [],
        };
        return {
          completion: { ...found, values: found.values.slice(0, MAX_COMPLETIONS), hasMore: found.hasMore ?? false },
        };
      },
    },
    relayedBy(about),
  );
}

/** The part of a caller's name that errors and logs repeat. */
export function clip(name: string): string {
  return name.length > 128 ? `${name.slice(0, 128)}…` : name;
}

const OWN_PARAMS = new Set([
  "name",
  "arguments",
  "uri",
  "ref",
  "argument",
  "context",
  "_meta",
  "inputResponses",
  "requestState",
]);
const OWN_META = new Set<string>([
  META.protocolVersion,
  META.clientCapabilities,
  META.clientInfo,
  META.logLevel,
  "progressToken",
  "traceparent",
  "tracestate",
  "baggage",
]);

/** True for keys that only this gateway writes, and for those that a reader could take for them. */
export function isOwnMeta(key: string): boolean {
  return key.trim().toLowerCase().startsWith("portcullis");
}

/** Which further fields of `params` and which foreign keys of `_meta` (as `_meta/KEY`) a server receives. */
export type Forwards = (path: string) => boolean;

export interface Forwarded {
  readonly fields: JsonObject;
  /** Names of what was left out, as `Forwards` writes them. */
  readonly dropped: readonly string[];
}

const NOTHING_DROPPED: readonly string[] = [];

/**
 * Fields of the protocol itself are set for the next hop and are never among these. `forwards` is left out for
 * in-process servers: nothing leaves the process there, so every other field is part of the intent.
 */
export function forwardedOf(params: JsonObject, round: InputRound, forwards?: Forwards): Forwarded {
  let out: JsonObject = NOTHING_FORWARDED;
  let dropped: string[] | undefined;
  const put = (key: string, value: JsonObject[string]): void => {
    if (out === NOTHING_FORWARDED) out = {};
    out[key] = value;
  };
  const travels = (path: string): boolean => {
    if (forwards === undefined || forwards(path)) return true;
    dropped ??= [];
    dropped.push(path);
    return false;
  };
  for (const key in params) if (!OWN_PARAMS.has(key) && travels(key)) put(key, params[key] as JsonObject[string]);
  const meta = params._meta;
  if (isJsonObject(meta)) {
    const foreign = Object.entries(meta).filter(
      ([key]) => !OWN_META.has(key) && !isOwnMeta(key) && travels(`_meta/${key}`),
    );
    if (foreign.length > 0) put("_meta", Object.fromEntries(foreign));
  }
  if (Object.keys(round.responses).length > 0) put("inputResponses", round.responses);
  return { fields: out, dropped: dropped ?? NOTHING_DROPPED };
}

const MAX_RESPONSES = 64;

/** The answers and the state that the caller brings back; at once where there is no state. */
export function openInputRound(
  pipeline: Pipeline,
  request: CallRequest,
  route: Route,
): InputRound | Promise<InputRound> {
  const { params, principal, method } = request;
  if (params.requestState === undefined) return { responses: responsesOf(params), state: undefined };
  const given = responsesOf(params);
  const bind = bindingOf(principal, method, route.name, route.arguments);
  return pipeline.stateCipher
    .decrypt(bind, params.requestState)
    .then(({ responses, state, use }) => ({ responses: { ...responses, ...given }, state, use }));
}

function responsesOf(params: JsonObject): Record<string, JsonObject> {
  const given = params.inputResponses;
  if (given === undefined) return {};
  if (!isJsonObject(given) || Object.keys(given).length > MAX_RESPONSES) {
    throw new Fault("InvalidParams", `\`inputResponses\` must be an object of at most ${MAX_RESPONSES} answers`, {
      field: "inputResponses",
    });
  }
  for (const [key, value] of Object.entries(given)) {
    if (!isJsonObject(value)) {
      throw new Fault("InvalidParams", `\`inputResponses.${key}\` must be an object`, {
        field: `inputResponses.${key}`,
      });
    }
  }
  return given as Record<string, JsonObject>;
}
