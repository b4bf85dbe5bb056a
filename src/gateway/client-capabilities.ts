// What is kept of the capabilities that a client declares, with `initialize` or with each request: the ones that the
// protocol defines, and the names of extensions. A session lives for long, so what the client wrote besides is dropped.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";

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
 * Written anew from known names: capabilities are not part of the intent, so no text of the caller may travel in them.
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
