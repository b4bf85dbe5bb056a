// From a method and its parameters to the one thing it is about. A name that is not there, and one that is not the
// caller's to see, take the same path and give the same answer.

import { intentArguments, type Principal } from "../policy/index.js";
import { Fault, isJsonObject, type JsonObject } from "../mcp/index.js";
import type { CallContext, Prompt, Tool, Validation } from "../mcp/server/index.js";
import type { RunContext } from "./call-context.js";
import type { Gateway, Relayed, Route } from "./types.js";

const VALID: Validation = { ok: true };
const valid = (): Validation => VALID;

export function routeFor(gateway: Gateway, principal: Principal, method: string, params: JsonObject): Route {
  switch (method) {
    case "tools/call":
      return toolRoute(gateway, principal, stringField(params, "name"), argumentsOf(params));
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      return resourceRoute(gateway, principal, method, stringField(params, "uri"));
    case "prompts/get":
      return promptRoute(gateway, principal, stringField(params, "name"), argumentsOf(params));
    case "completion/complete":
      return completionRoute(gateway, principal, params);
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
export function findTool(gateway: Gateway, { tools: within }: Principal, name: string): Tool | undefined {
  const tool = toolNamed(gateway, name);
  return tool && (within?.has(tool.definition.name) ?? true) ? tool : undefined;
}

function toolNamed({ server: { tools, aliases } }: Gateway, name: string): Tool | undefined {
  return tools.get(name) ?? tools.get(aliases?.get(name) ?? "");
}

export function visibleTool(gateway: Gateway, principal: Principal, name: string): Tool {
  const tool = findTool(gateway, principal, name);
  if (tool) return tool;
  const known = toolNamed(gateway, name);
  const needsScope = known && principal.stepUp?.(known.definition.name);
  if (needsScope) throw needsScope;
  throw new Fault("ToolNotFound", `there is no tool \`${clip(name)}\``, {
    field: "name",
    suggestions: ["List the tools that can be called with `tools/list`"],
  });
}

function toolRoute(gateway: Gateway, principal: Principal, name: string, args: JsonObject): Route {
  const tool = visibleTool(gateway, principal, name);
  const relayed = relayedBy(tool);
  return {
    type: "Tool",
    name: tool.definition.name,
    action: tool.definition.name,
    binding: relayed?.binding ?? `local:${gateway.server.info.name}`,
    server: relayed?.server ?? gateway.server.info.name,
    ...(relayed ? { forwards: relayed.forwards } : {}),
    definitionHash: tool.definitionHash,
    tags: tool.tags,
    readOnly: gateway.readOnlyTools.has(tool.definition.name),
    noGuardrailRequired: tool.noGuardrailRequired || gateway.unguardedTools.has(tool.definition.name),
    arguments: args,
    builtin: false,
    timeoutMs: tool.timeoutMs ?? gateway.limits.toolTimeoutMs,
    hasOutputSchema: tool.definition.outputSchema !== undefined,
    validate: (value) => tool.validate(value),
    validateOutput: (value) => tool.validateOutput(value),
    run: relayed
      ? (context) => relayed.relay(context)
      : (context) => tool.run(argumentsIn(context), context) as Promise<JsonObject>,
  };
}

/** Set on what a downstream server does. */
export function relayedBy(thing: object | undefined): Relayed | undefined {
  return (thing as { relayed?: Relayed } | undefined)?.relayed;
}

/** The arguments that run are parsed anew from what was hashed. */
function argumentsIn(context: RunContext): JsonObject {
  return intentArguments(context.grant.intent);
}

/** Everything that is no tool: no schema of its own, read by nature, so no guardrail. */
function plainRoute(
  gateway: Gateway,
  part: Pick<Route, "type" | "name" | "action" | "arguments" | "run">,
  relayed?: Relayed,
): Route {
  return {
    ...part,
    ...(relayed ? { run: (context: RunContext) => relayed.relay(context) } : {}),
    binding: relayed?.binding ?? `local:${gateway.server.info.name}`,
    server: relayed?.server ?? gateway.server.info.name,
    ...(relayed ? { forwards: relayed.forwards } : {}),
    definitionHash: "",
    tags: [],
    readOnly: true,
    noGuardrailRequired: true,
    builtin: false,
    timeoutMs: gateway.limits.toolTimeoutMs,
    hasOutputSchema: false,
    validate: valid,
    validateOutput: valid,
  };
}

function resourceRoute(gateway: Gateway, principal: Principal, method: string, uri: string): Route {
  const found = mayRead(principal, uri) ? reader(gateway, uri) : undefined;
  if (!found) {
    throw new Fault("ResourceNotFound", `there is no resource \`${clip(uri)}\``, { field: "uri", extra: { uri } });
  }
  const base = { type: "Resource" as const, name: uri, action: method, arguments: { uri } };
  if (method !== "resources/read") {
    const route = plainRoute(gateway, { ...base, run: () => ({}) });
    return { ...route, ...originOf(found.relayed), builtin: method === "resources/unsubscribe" };
  }
  const { read } = found;
  return plainRoute(gateway, { ...base, run: (context) => read(context) as Promise<JsonObject> }, found.relayed);
}

function originOf(relayed: Relayed | undefined): Partial<Route> {
  return relayed ? { binding: relayed.binding, server: relayed.server, forwards: relayed.forwards } : {};
}

interface Readable {
  read(context: CallContext): Promise<unknown>;
  relayed?: Relayed;
}

function reader(gateway: Gateway, uri: string): Readable | undefined {
  const { server } = gateway;
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

function promptNamed(gateway: Gateway, principal: Principal, name: string): Prompt {
  const prompt = mayGet(principal, name) ? gateway.server.prompts.get(name) : undefined;
  if (!prompt) throw new Fault("PromptNotFound", `there is no prompt \`${clip(name)}\``, { field: "name" });
  return prompt;
}

function promptRoute(gateway: Gateway, principal: Principal, name: string, args: JsonObject): Route {
  const prompt = promptNamed(gateway, principal, name);
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
    gateway,
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

function completionRoute(gateway: Gateway, principal: Principal, params: JsonObject): Route {
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
    ? promptNamed(gateway, principal, name)
    : mayRead(principal, name)
      ? gateway.server.templates.find((template) => template.definition.uriTemplate === name)
      : undefined;
  return plainRoute(
    gateway,
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

/** As much of a name as an error repeats: the caller wrote it, and an error goes to logs as well. */
export function clip(name: string): string {
  return name.length > 128 ? `${name.slice(0, 128)}…` : name;
}
