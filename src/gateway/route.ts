// From a method and its parameters to the one thing it is about. A name that is not there, and one that is not the
// caller's to see, take the same path and give the same answer.

import type { Principal } from "../gate/index.js";
import { Fault, isJsonObject, type JsonObject } from "../protocol/index.js";
import type { CallContext, Prompt, Tool, Validation } from "../tool/index.js";
import type { Gateway, Route } from "./types.js";

const VALID: Validation = { ok: true };
const valid = (): Validation => VALID;

export function routeFor(gateway: Gateway, principal: Principal, method: string, params: JsonObject): Route {
  switch (method) {
    case "tools/call":
      return toolRoute(gateway, principal, stringField(params, "name"), argumentsOf(params));
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      return resourceRoute(gateway, method, stringField(params, "uri"));
    case "prompts/get":
      return promptRoute(gateway, stringField(params, "name"), argumentsOf(params));
    case "completion/complete":
      return completionRoute(gateway, params);
    default:
      throw new Fault("MethodNotFound", `there is no method \`${method}\``);
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

/** The tool, when it is there and within this caller's capabilities. */
export function visibleTool(gateway: Gateway, principal: Principal, name: string): Tool {
  const tool = gateway.server.tools.get(name);
  if (!tool || (principal.tools && !principal.tools.has(name))) {
    throw new Fault("ToolNotFound", `there is no tool \`${clip(name)}\``, {
      field: "name",
      suggestions: ["List the tools that can be called with `tools/list`"],
    });
  }
  return tool;
}

function toolRoute(gateway: Gateway, principal: Principal, name: string, args: JsonObject): Route {
  const tool = visibleTool(gateway, principal, name);
  return {
    type: "Tool",
    name,
    action: name,
    binding: `local:${gateway.server.info.name}`,
    server: gateway.server.info.name,
    definitionHash: tool.definitionHash,
    tags: tool.tags,
    readOnly: gateway.readOnlyTools.has(name),
    noGuardrailRequired: tool.noGuardrailRequired || gateway.unguardedTools.has(name),
    arguments: args,
    builtin: false,
    timeoutMs: tool.timeoutMs ?? gateway.limits.toolTimeoutMs,
    hasOutputSchema: tool.definition.outputSchema !== undefined,
    validate: (value) => tool.validate(value),
    validateOutput: (value) => tool.validateOutput(value),
    run: (value, context) => tool.run(value, context) as Promise<JsonObject>,
  };
}

/** Everything that is no tool: no schema of its own, read by nature, so no guardrail. */
function plainRoute(gateway: Gateway, part: Pick<Route, "type" | "name" | "action" | "arguments" | "run">): Route {
  return {
    ...part,
    binding: `local:${gateway.server.info.name}`,
    server: gateway.server.info.name,
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

function resourceRoute(gateway: Gateway, method: string, uri: string): Route {
  const read = reader(gateway, uri);
  if (!read) {
    throw new Fault("ResourceNotFound", `there is no resource \`${clip(uri)}\``, { field: "uri", extra: { uri } });
  }
  const base = { type: "Resource" as const, name: uri, action: method, arguments: { uri } };
  if (method !== "resources/read") {
    return { ...plainRoute(gateway, { ...base, run: () => ({}) }), builtin: method === "resources/unsubscribe" };
  }
  return plainRoute(gateway, {
    ...base,
    run: (_args, context) => read(context) as Promise<JsonObject>,
  });
}

type ReadResource = (context: CallContext) => Promise<unknown>;

function reader(gateway: Gateway, uri: string): ReadResource | undefined {
  const resource = gateway.server.resources.get(uri);
  if (resource) return (context) => resource.read(uri, context);
  for (const template of gateway.server.templates) {
    const variables = template.match(uri);
    if (variables) return (context) => template.read(uri, variables, context);
  }
  return undefined;
}

function promptNamed(gateway: Gateway, name: string): Prompt {
  const prompt = gateway.server.prompts.get(name);
  if (!prompt) throw new Fault("PromptNotFound", `there is no prompt \`${clip(name)}\``, { field: "name" });
  return prompt;
}

function promptRoute(gateway: Gateway, name: string, args: JsonObject): Route {
  const prompt = promptNamed(gateway, name);
  for (const argument of prompt.definition.arguments ?? []) {
    const value = args[argument.name];
    if (value === undefined ? argument.required : typeof value !== "string") {
      const problem = value === undefined ? "is required" : "must be a string";
      throw new Fault("InvalidParams", `argument \`${argument.name}\` of prompt \`${name}\` ${problem}`, {
        field: argument.name,
      });
    }
  }
  return plainRoute(gateway, {
    type: "Prompt",
    name,
    action: "prompts/get",
    arguments: args,
    run: (value, context) => prompt.get(value as Record<string, string>, context) as unknown as Promise<JsonObject>,
  });
}

const MAX_COMPLETIONS = 100;

function completionRoute(gateway: Gateway, params: JsonObject): Route {
  const ref = isJsonObject(params.ref) ? params.ref : {};
  const argument = isJsonObject(params.argument) ? params.argument : {};
  const asked = { name: stringField(argument, "name"), value: stringField(argument, "value") };
  const context = isJsonObject(params.context) ? params.context : {};
  const isPrompt = ref.type === "ref/prompt";
  if (!isPrompt && ref.type !== "ref/resource") {
    throw new Fault("InvalidParams", "`ref.type` must be ref/prompt or ref/resource", { field: "ref.type" });
  }
  const name = stringField(ref, isPrompt ? "name" : "uri");
  const completer = isPrompt
    ? promptNamed(gateway, name).complete
    : gateway.server.templates.find((template) => template.definition.uriTemplate === name)?.complete;
  return plainRoute(gateway, {
    type: isPrompt ? "Prompt" : "Resource",
    name,
    action: "completion/complete",
    arguments: { argument: asked, context },
    run: async () => {
      const found = (await completer?.(asked, context as { arguments?: Record<string, string> })) ?? { values: [] };
      return {
        completion: { ...found, values: found.values.slice(0, MAX_COMPLETIONS), hasMore: found.hasMore ?? false },
      };
    },
  });
}

function clip(name: string): string {
  return name.length > 128 ? `${name.slice(0, 128)}…` : name;
}
