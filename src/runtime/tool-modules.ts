// The tool modules of this process: built-in ones by name, own ones by file (`--modules framework,./mine.mjs`). The
// operator who starts the process names them. A document cannot: it only permits their tools.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { JsonObject } from "../mcp/index.js";
import type { Tool } from "../mcp/server/index.js";
import { CliError, EXIT } from "../lib/exit.js";

/** Modules of a Core server; an App or Community server loads none of them. */
export const BUILT_IN_MODULES = ["framework", "state", "llm", "linux", "filesystem"] as const;

/** `ToolModule` is the default export of a file: the tools of one application. */
export type ToolModule = (application: { readonly id: string; readonly config: JsonObject }) => Iterable<Tool>;

export interface ToolModules {
  readonly builtIn: ReadonlySet<string>;
  readonly own: readonly ToolModule[];
}

const isFile = (name: string): boolean => /[\\/]|\.m?js$/.test(name);

export async function loadToolModules(names: readonly string[] = BUILT_IN_MODULES): Promise<ToolModules> {
  const unknown = names.find((name) => !isFile(name) && !BUILT_IN_MODULES.some((known) => known === name));
  if (unknown !== undefined) {
    throw new CliError(
      `unknown module \`${unknown}\``,
      EXIT.usage,
      `use ${BUILT_IN_MODULES.join(", ")}, or the path of a file such as ./mine.mjs`,
    );
  }
  const own = await Promise.all(names.filter(isFile).map(loadFile));
  return { builtIn: new Set(names.filter((name) => !isFile(name))), own };
}

async function loadFile(name: string): Promise<ToolModule> {
  const path = resolve(name);
  const loaded = (await import(pathToFileURL(path).href).catch((error: Error) => {
    throw new CliError(`cannot load module ${path}: ${error.message}`);
  })) as { default?: unknown };
  if (typeof loaded.default === "function") return loaded.default as ToolModule;
  throw new CliError(
    `module ${path} has no function as its default export`,
    EXIT.error,
    "export default ({ id, config }) => [defineTool({ … })]",
  );
}
