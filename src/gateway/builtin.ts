// Requests that the endpoint itself answers: lists, validation without running, log levels, discovery. They pass through
// `call` like everything else; being harmless by construction, a built-in rule permits them.

import { Fault, type JsonObject, type Revision, SUPPORTED_VERSIONS } from "../mcp/index.js";
import { type ServerDefinition, type Validation, validateArguments } from "../mcp/server/index.js";
import {
  argumentsOf,
  clip,
  isLogLevel,
  MCP_LOG_LEVELS,
  RawResult,
  type Route,
  routeFor,
  stringField,
  visibleTool,
} from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { Gateway } from "./application-types.js";
import { describeServer, serverCapabilitiesOf } from "./capabilities.js";
import { LIST_METHODS, type ListCaller, type ListMethod } from "./lists.js";
import { foundText, searchOf } from "./search.js";
import type { Session } from "./session.js";

const VALID: Validation = { ok: true };

/** Undefined when the method is not the endpoint's own. Throws nothing: what is wrong shows when the route runs. */
export function localRoute(
  gateway: Gateway,
  principal: Principal,
  revision: Revision,
  method: string,
  params: JsonObject,
  transport: string,
  session: Session | undefined,
): Route | undefined {
  if (!offers(gateway.server, revision, method)) {
    return builtin(gateway, method, () => {
      throw new Fault("MethodNotFound", `there is no method \`${clip(method)}\` here`);
    });
  }
  if (LIST_METHODS.has(method)) {
    return builtin(gateway, method, () => {
      const page = gateway.lists.page(gateway, { principal, transport }, method as ListMethod, params.cursor);
      return page instanceof Promise ? page.then((text) => new RawResult(text)) : new RawResult(page);
    });
  }
  switch (method) {
    case "tools/call":
      return gateway.server.isSearched?.() ? searchRoute(gateway, { principal, transport }, params) : undefined;
    case "tools/validate":
      return builtin(gateway, method, async () => validateOnly(gateway, principal, params));
    case "logging/setLevel":
      return builtin(gateway, method, () => setLevel(session, params));
    case "server/discover":
      return builtin(gateway, method, () => ({
        supportedVersions: [...SUPPORTED_VERSIONS],
        ...describeServer(gateway.server, revision, principal),
      }));
    case "subscriptions/listen":
      return { ...builtin(gateway, method, () => ({})), builtin: false };
    case "resources/subscribe":
    case "resources/unsubscribe":
      return sessionRoute(gateway, principal, method, params, session);
    default:
      return undefined;
  }
}

/** Of the tools that stand for all; `call_tool` is a call of the tool that it names. */
function searchRoute(gateway: Gateway, caller: ListCaller, params: JsonObject): Route | undefined {
  const answered = (text: string): JsonObject => ({ content: [{ type: "text", text }] });
  switch (params.name) {
    case "find_tools":
      return builtin(gateway, "find_tools", async () => {
        const { query, limit } = searchOf(params);
        const index = await gateway.lists.search(gateway, caller);
        return answered(foundText(await index.find(query, limit)));
      });
    case "describe_tool":
      return builtin(gateway, "describe_tool", async () => {
        const name = stringField(argumentsOf(params), "name");
        const found = (await gateway.lists.search(gateway, caller)).describe(name);
        // INVARIANT: the same answer for a tool that is not there and one that the caller may not use.
        if (found === undefined)
          throw new Fault("ToolNotFound", `there is no tool \`${clip(name)}\``, { field: "name" });
        return answered(JSON.stringify(found));
      });
    default:
      return undefined;
  }
}

function builtin(gateway: Gateway, method: string, run: Route["run"]): Route {
  return {
    type: "Method",
    name: method,
    action: method,
    binding: `local:${gateway.server.info.name}`,
    server: gateway.server.info.name,
    definitionHash: "",
    tags: [],
    readOnly: true,
    noGuardrailRequired: true,
    builtin: true,
    arguments: {},
    timeoutMs: gateway.limits.toolTimeoutMs,
    hasOutputSchema: false,
    validate: () => VALID,
    validateOutput: () => VALID,
    run,
  };
}

/** A method exists where the revision has it and the server offers what it is about. */
function offers(server: ServerDefinition, revision: Revision, method: string): boolean {
  if (!revision.methods.has(method)) return false;
  if (method.startsWith("tools/")) return true;
  const capabilities = serverCapabilitiesOf(server, revision);
  if (method.startsWith("prompts/")) return capabilities.prompts !== undefined;
  if (method.startsWith("resources/")) return capabilities.resources !== undefined;
  if (method === "completion/complete") return capabilities.completions !== undefined;
  return true;
}

async function validateOnly(gateway: Gateway, principal: Principal, params: JsonObject): Promise<JsonObject> {
  const tool = visibleTool(gateway, principal, stringField(params, "name"));
  return (await validateArguments(tool, argumentsOf(params))) as unknown as JsonObject;
}

function setLevel(session: Session | undefined, params: JsonObject): JsonObject {
  const level = stringField(params, "level");
  if (!isLogLevel(level)) {
    throw new Fault("InvalidParams", `\`level\` must be one of ${MCP_LOG_LEVELS.join(", ")}`, { field: "level" });
  }
  if (session) session.logLevel = level;
  return {};
}

function sessionRoute(
  gateway: Gateway,
  principal: Principal,
  method: string,
  params: JsonObject,
  session: Session | undefined,
): Route | undefined {
  if (!session) return undefined;
  let route: Route;
  try {
    route = routeFor(gateway, principal, method, params);
  } catch {
    // `call` routes again, fails the same way, and records it.
    return undefined;
  }
  const subscribe = method === "resources/subscribe";
  return {
    ...route,
    run: () => {
      if (subscribe) session.subscribe(route.name, () => gateway.server.follow?.(route.name) ?? (() => {}));
      else session.unsubscribe(route.name);
      return {};
    },
  };
}
