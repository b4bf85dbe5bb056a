// The core tools of an application, from its document and the services that are its own.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type CoreApplication, type CoreServices, historyOf, repositoryDirectory, valuesOf } from "../tools/index.js";
import { type CoreTools, matcher } from "../gateway/index.js";
import { Sandbox } from "../host/index.js";
import type { Application, Storage } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import type { Tool } from "../mcp/server/index.js";
import { createDialer, createOutbound } from "../upstream/index.js";
import type { ResolveText } from "./servers.js";
import type { ToolModules } from "./tool-modules.js";
import { usableTools } from "./usable-tools.js";

export interface CoreOptions {
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
      note: (...said) => options.telemetry.note(...said),
      ...(has("state")
        ? { values: valuesOf(options.storage.values, id), history: historyOf(options.storage.repositories, id) }
        : {}),
      fetch: outbound.fetch,
      resolve: (text) => options.resolve(id, text),
      ...(sandbox ? { sandbox } : {}),
      protectedPaths: options.protectedPaths,
    };
    const allowed = matcher(document.permissions ?? []);
    const { tools, voice } = usableTools(app, services, options.telemetry.log);
    const builtIn = tools.filter(({ definition: { name } }) => has(moduleOf(name)));
    return {
      tools: [...builtIn, ...ownTools(application, options)].filter(({ definition: { name } }) => allowed(name)),
      voices: [voice],
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
      telemetry.log.error("a tool module cannot be used, its tools are left out", { app: id, problem });
      return [];
    }
  });
}

/** `framework` of `core.framework.getConfigValue`. */
function moduleOf(tool: string): string {
  return tool.split(".")[1] ?? "";
}
