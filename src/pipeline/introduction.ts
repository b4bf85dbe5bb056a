// What `initialize` and `server/discover` say of an application: capabilities and instructions, of the servers that the
// caller's credential reaches something of.

import type { Principal } from "../policy/index.js";
import type { JsonObject, Revision } from "../mcp/index.js";
import type { InstructionPart, ServerDefinition } from "../mcp/server/index.js";
import { mayGet, mayRead } from "./route.js";

export interface Introduction {
  readonly capabilities: JsonObject;
  readonly instructions?: string;
}

/** Instructions of all servers together, in characters. */
const MAX_INSTRUCTIONS = 32_768;

export function introduce(server: ServerDefinition, revision: Revision, principal: Principal): Introduction {
  const instructions = instructionsFor(server, principal);
  return {
    capabilities: granted(serverCapabilitiesOf(server, revision), principal),
    ...(instructions === undefined ? {} : { instructions }),
  };
}

/** Remembered per server and era: the answer changes only with what the server offers. */
const remembered = new WeakMap<ServerDefinition, Map<string, JsonObject>>();

export function serverCapabilitiesOf(server: ServerDefinition, revision: Revision): JsonObject {
  const hasResources = server.resources.size > 0 || server.templates.length > 0;
  const key = `${revision.era} ${server.prompts.size > 0} ${hasResources}`;
  const known = remembered.get(server)?.get(key);
  if (known) return known;
  const completes =
    server.templates.some((template) => template.complete) ||
    [...server.prompts.values()].some((prompt) => prompt.complete);
  const capabilities: JsonObject = {
    tools: { listChanged: true },
    ...(hasResources ? { resources: { listChanged: true, subscribe: true } } : {}),
    ...(server.prompts.size > 0 ? { prompts: { listChanged: true } } : {}),
    ...(completes ? { completions: {} } : {}),
    logging: {},
  };
  const entry = remembered.get(server) ?? new Map<string, JsonObject>();
  entry.set(key, capabilities);
  remembered.set(server, entry);
  return capabilities;
}

/** Without what the credential grants nothing of. */
function granted(capabilities: JsonObject, { resources, prompts }: Principal): JsonObject {
  const hidden = [
    ...(resources?.isEmpty ? ["resources"] : []),
    ...(prompts?.isEmpty ? ["prompts"] : []),
    ...(resources?.isEmpty && prompts?.isEmpty ? ["completions"] : []),
  ];
  if (hidden.length === 0) return capabilities;
  return Object.fromEntries(Object.entries(capabilities).filter(([name]) => !hidden.includes(name)));
}

export function isRestricted({ tools, shown, resources, prompts }: Principal): boolean {
  return (tools ?? shown ?? resources ?? prompts) !== undefined;
}

/** By what the servers offer and by caller: an application may have thousands of tools to look through. */
const known = new WeakMap<object, WeakMap<Principal, string>>();

function instructionsFor(server: ServerDefinition, principal: Principal): string | undefined {
  const { instructions = "", tools, resources, templates, prompts } = server;
  const parts = server.instructionParts ?? [{ instructions, tools, resources, templates, prompts }];
  const texts = known.get(parts) ?? new WeakMap<Principal, string>();
  known.set(parts, texts);
  let text = texts.get(principal);
  if (text === undefined) {
    const reachable = isRestricted(principal) ? parts.filter((part) => reaches(principal, part)) : parts;
    text = reachable.map((part) => part.instructions).join("\n\n");
    texts.set(principal, text);
  }
  return text === "" ? undefined : text.slice(0, MAX_INSTRUCTIONS);
}

function reaches(principal: Principal, { tools, resources, templates, prompts }: InstructionPart): boolean {
  const within = principal.shown ?? principal.tools;
  return (
    some(tools, ({ definition }) => within?.has(definition.name) ?? true) ||
    some(resources, ({ definition }) => mayRead(principal, definition.uri)) ||
    some(templates, ({ definition }) => mayRead(principal, definition.uriTemplate)) ||
    some(prompts, ({ definition }) => mayGet(principal, definition.name))
  );
}

function some<T>(things: readonly T[] | ReadonlyMap<string, T>, test: (thing: T) => boolean): boolean {
  for (const thing of things.values()) if (test(thing)) return true;
  return false;
}
