// What commands share: how options are read, and where the tools that a policy speaks of are found.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Command, InvalidArgumentError } from "commander";
import { toolSummaries } from "../gateway/index.js";
import { isJsonObject, type JsonObject, parseStrict } from "../protocol/index.js";
import type { ServerDefinition } from "../tool/index.js";
import { demoServer } from "./demo-tools.js";
import { CliError, EXIT } from "./exit.js";
import { createOut, type Out } from "./print.js";
import { statePaths } from "./state.js";
import { VERSION } from "./version.js";
import type { ServedTool } from "./voices.js";

export interface Shared {
  json: boolean;
  dir: string;
}

export function shared(command: Command): Shared {
  const { json = false, dir } = command.optsWithGlobals<{ json?: boolean; dir: string }>();
  return { json, dir };
}

export function outFor(command: Command): Out {
  return createOut(shared(command).json);
}

export function portNumber(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new InvalidArgumentError("a port is 0 to 65535.");
  return port;
}

export function jsonArguments(text: string | undefined): JsonObject {
  if (text === undefined) return {};
  try {
    const value = parseStrict(text === "-" ? readFileSync(0, "utf8") : text);
    if (isJsonObject(value)) return value;
  } catch (error) {
    throw new CliError(
      `the arguments are no JSON: ${(error as Error).message}`,
      EXIT.usage,
      `write them like '{"a":1}'`,
    );
  }
  throw new CliError("the arguments must be a JSON object", EXIT.usage, `write them like '{"a":1}'`);
}

/** A module whose default export is a server, or the demonstration when none is named. */
export async function loadServer(module: string | undefined): Promise<ServerDefinition> {
  if (module === undefined) return demoServer(VERSION).server;
  const loaded = (await import(pathToFileURL(module).href).catch((error: Error) => {
    throw new CliError(`cannot load ${module}: ${error.message}`);
  })) as { default?: ServerDefinition };
  if (!(loaded.default?.tools instanceof Map)) {
    throw new CliError(`${module} has no server as its default export`, EXIT.error, "export default createServer(…)");
  }
  return loaded.default;
}

/** The tools that policies are checked against: a manifest that was named, what was served last, or the demonstration. */
export function toolsFor(command: Command, manifest: string | undefined): ServedTool[] {
  const file = manifest ?? join(statePaths(shared(command).dir).dir, "tools.json");
  if (manifest === undefined && !existsSync(file)) return servedTools(demoServer(VERSION).server);
  let parsed: JsonObject;
  try {
    parsed = JSON.parse(readFileSync(file, "utf8")) as JsonObject;
  } catch (error) {
    throw new CliError(`cannot read the tools in ${file}: ${(error as Error).message}`);
  }
  const result = isJsonObject(parsed.result) ? parsed.result : parsed;
  if (!Array.isArray(result.tools)) throw new CliError(`${file} holds no \`tools\`: give it the answer of tools/list`);
  const server = typeof parsed.server === "string" ? parsed.server : "local";
  return result.tools.map((tool) => {
    const { name, inputSchema, tags, noGuardrailRequired } = tool as unknown as ServedTool;
    const guarded = typeof noGuardrailRequired === "boolean" ? { noGuardrailRequired } : {};
    return { name, server, inputSchema, tags: tags ?? [], ...guarded };
  });
}

function servedTools(server: ServerDefinition): ServedTool[] {
  return toolSummaries(server).map((tool) => ({
    ...tool,
    noGuardrailRequired: server.tools.get(tool.name)?.noGuardrailRequired ?? false,
  }));
}

export function policyPaths(command: Command, given: readonly string[] | undefined): string[] {
  return given?.length ? [...given] : [statePaths(shared(command).dir).policyDir];
}

export function ledgerDir(command: Command): string {
  return statePaths(shared(command).dir).ledgerDir;
}
