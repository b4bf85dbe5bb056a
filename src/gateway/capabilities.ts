// Capabilities of both sides: what `initialize` and `server/discover` return for an application (of the servers that the
// caller's credential reaches), and what is kept of the capabilities that a client declares. A session lives for long, so
// of those only what the protocol defines and the names of extensions are kept.

import { isJsonObject, type JsonObject, type JsonValue, type Revision } from "../mcp/index.js";
import type { InstructionPart, ServerDefinition } from "../mcp/server/index.js";
import { mayGet, mayRead } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";

interface ServerDescription {
  readonly capabilities: JsonObject;
  readonly instructions?: string;
}

/** Instructions of all servers together, in characters. */
const MAX_INSTRUCTIONS = 32_768;

export function describeServer(server: ServerDefinition, revision: Revision, principal: Principal): ServerDescription {
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

const DEFINED = ["roots", "sampling", "elicitation", "tasks"];
const NAMED = ["experimental", "extensions"];
const MAX_DEPTH = 4;
const MAX_KEYS = 16;
const MAX_EXTENSIONS = 64;
const MAX_NAME_CHARS = 128;

export function keptCapabilities(declared: JsonValue | undefined): JsonObject {
  const kept: JsonObject = {};
  if (!isJsonObject(declared)) return kept;
  for (const name of DEFINED) {
    if (isJsonObject(declared[name])) kept[name] = flags(declared[name], MAX_DEPTH);
  }
  for (const name of NAMED) {
    const named = declared[name];
    if (isJsonObject(named)) kept[name] = names(named);
  }
  return kept;
}

/** The capabilities that a server can use through the gateway, with the options that the protocol defines for them. */
const OPTIONS = {
  elicitation: ["form", "url"],
  sampling: ["context", "tools"],
  roots: ["listChanged"],
} as const;

/**
 * Copied from known names: capabilities are not part of the intent, so no text of the caller may travel in them.
 */
export function capabilitiesForServers(declared: JsonObject): JsonObject {
  const shown: JsonObject = {};
  for (const [name, options] of Object.entries(OPTIONS)) {
    const given = declared[name];
    if (!isJsonObject(given)) continue;
    const known = options.filter((option) => given[option] !== undefined && given[option] !== false);
    shown[name] = Object.fromEntries(known.map((option) => [option, option === "listChanged" ? true : {}]));
  }
  return shown;
}

/** Capabilities are objects of objects and booleans. */
function flags(value: JsonObject, depth: number): JsonObject {
  const kept: JsonObject = {};
  let keys = 0;
  for (const name in value) {
    if (keys++ >= MAX_KEYS) break;
    const each = value[name];
    if (name.length > MAX_NAME_CHARS) continue;
    if (typeof each === "boolean") kept[copied(name)] = each;
    else if (isJsonObject(each) && depth > 1) kept[copied(name)] = flags(each, depth - 1);
  }
  return kept;
}

function names(value: JsonObject): JsonObject {
  const kept: JsonObject = {};
  let count = 0;
  for (const name in value) {
    if (count++ >= MAX_EXTENSIONS) break;
    if (name.length <= MAX_NAME_CHARS) kept[copied(name)] = {};
  }
  return kept;
}

/** A part of a text keeps the whole text in memory; a copy does not. */
function copied(name: string): string {
  return Buffer.from(name, "utf8").toString("utf8");
}
