// The core tools of an application, from its document and the services that are its own.

import { mkdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type CoreTools, matcher } from "../gateway/index.js";
import { Sandbox } from "../host/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import type { JsonObject } from "../mcp/index.js";
import type { Tool } from "../mcp/server/index.js";
import type { Check, GuardrailCallback } from "../policy/index.js";
import type { Application, Storage } from "../storage/index.js";
import type { Logger, Telemetry } from "../telemetry/index.js";
import {
  applicationValues,
  type CoreApplication,
  type CoreServices,
  CoreSettingsError,
  coreChecks,
  coreTools,
  historyOf,
  repositoryDirectory,
} from "../tools/index.js";
import { createDialer, createOutbound } from "../upstream/index.js";
import type { ResolveText } from "./servers.js";

interface CoreOptions {
  readonly storage: Storage;
  readonly telemetry: Telemetry;
  readonly resolve: ResolveText;
  readonly stateDir: string;
  readonly protectedPaths: readonly string[];
  readonly modules: ToolModules;
  readonly allow: readonly string[];
}

export function coreFor(options: CoreOptions) {
  const outbound = createOutbound(createDialer({ allow: [...options.allow] }));
  return async (application: Application): Promise<CoreTools> => {
    const { id, document } = application;
    const has = (module: string): boolean => options.modules.builtIn.has(module);
    const repositories = join(options.stateDir, "repositories");
    if (has("state")) mkdirSync(repositories, { recursive: true, mode: 0o700 });
    const app: CoreApplication = {
      id,
      ...(has("framework") ? { config: document.config ?? {} } : {}),
      ...(has("state") ? { state: { repository: repositoryDirectory(repositories, id) } } : {}),
      ...(has("llm") && document.llm ? { llm: document.llm } : {}),
      ...(has("linux") && document.linux ? { linux: document.linux } : {}),
      ...(has("filesystem") && document.filesystem ? { filesystem: document.filesystem } : {}),
    };
    const sandbox = app.linux ? new Sandbox() : undefined;
    const services: CoreServices = {
      log: options.telemetry.log,
      note: (...args) => options.telemetry.note(...args),
      ...(has("state")
        ? {
            values: applicationValues(options.storage.values, id),
            history: historyOf(options.storage.repositories, id),
          }
        : {}),
      fetch: outbound.fetch,
      resolve: (text) => options.resolve(id, text),
      ...(sandbox ? { sandbox } : {}),
      protectedPaths: options.protectedPaths,
    };
    const allowed = matcher(document.permissions ?? []);
    const { tools, checks } = usableTools(app, services, options.telemetry.log);
    const builtIn = tools.filter(({ definition: { name } }) => has(moduleOf(name)));
    return {
      tools: [...builtIn, ...ownTools(application, options)].filter(({ definition: { name } }) => allowed(name)),
      checks,
      close: async () => {
        await sandbox?.close();
      },
    };
  };
}

/** The tools of own modules. Names under `core.` stay with the built-in modules. */
function ownTools({ id, document }: Application, { modules, telemetry }: CoreOptions): Tool[] {
  return modules.own.flatMap((module) => {
    try {
      const tools = [...module({ id, config: document.config ?? {} })];
      const taken = tools.find(({ definition: { name } }) => name.startsWith("core."));
      if (taken) throw new TypeError(`tool \`${taken.definition.name}\`: names under core are reserved`);
      return tools;
    } catch (error) {
      const problem = (error as Error).message;
      telemetry.log.error("tool module cannot be used: its tools are not served", { app: id, problem });
      return [];
    }
  });
}

/** `framework` of `core.framework.getConfigValue`. */
function moduleOf(tool: string): string {
  return tool.split(".")[1] ?? "";
}

/** Modules whose settings are independent: one that cannot be used has no tools, and the others continue. */
const APART: readonly (readonly (keyof CoreApplication)[])[] = [["filesystem", "linux"], ["llm"]];

export function usableTools(
  app: CoreApplication,
  services: CoreServices,
  log: Pick<Logger, "error">,
): { tools: Tool[]; checks: Check[] } {
  let rest = app;
  for (const modules of APART) {
    const alone = Object.fromEntries([["id", app.id], ...modules.map((each) => [each, app[each]])]) as CoreApplication;
    try {
      coreTools(alone, services);
    } catch (error) {
      if (!(error instanceof CoreSettingsError)) throw error;
      log.error("core tools cannot be used on this machine", { app: app.id, modules, problem: error.message });
      rest = { ...rest, ...Object.fromEntries(modules.map((each) => [each, undefined])) };
    }
  }
  return { tools: coreTools(rest, services), checks: coreChecks(rest, services) };
}

/** Modules of a Core server; an App or Community server loads none of them. */
const BUILT_IN_MODULES = ["framework", "state", "llm", "linux", "filesystem"] as const;

/** `ToolModule` is the default export of a file: the tools of one application. */
type ToolModule = (application: { readonly id: string; readonly config: JsonObject }) => Iterable<Tool>;

interface ToolModules {
  readonly builtIn: ReadonlySet<string>;
  readonly own: readonly ToolModule[];
}

/** True for the path of a module, false for the name of a built-in one. */
export const isModuleFile = (name: string): boolean => /[\\/]|\.m?js$/.test(name);

export async function loadToolModules(names: readonly string[] = BUILT_IN_MODULES): Promise<ToolModules> {
  const unknown = names.find((name) => !isModuleFile(name) && !BUILT_IN_MODULES.some((known) => known === name));
  if (unknown !== undefined) {
    throw new CliError(
      `unknown module \`${unknown}\``,
      EXIT.usage,
      `use ${BUILT_IN_MODULES.join(", ")}, or the path of a file such as ./mine.mjs`,
    );
  }
  const own = await Promise.all(names.filter(isModuleFile).map(loadFile));
  return { builtIn: new Set(names.filter((name) => !isModuleFile(name))), own };
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

const GUARDRAILS_DIRECTORY = "guardrails";

/** `guardrailModules` loads a file again when it has changed, the next time its application is opened or changed. */
export function guardrailModules(dataDirectory: string): (file: string) => Promise<GuardrailCallback> {
  const directory = join(dataDirectory, GUARDRAILS_DIRECTORY);
  return async (file) => {
    const path = join(directory, file);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats?.isFile() !== true) throw new Error(`${path} does not exist: create it on every machine of this gateway`);
    const url = pathToFileURL(path);
    url.searchParams.set("changed", String(stats.mtimeMs));
    const { default: callback } = (await import(url.href)) as { default?: unknown };
    if (typeof callback !== "function") throw new Error(`${path} has no function as its default export`);
    return callback as GuardrailCallback;
  };
}
