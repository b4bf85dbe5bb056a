// An application's core tools as far as its settings can be used on this machine: a folder that is not here costs the tools
// that need it, not the application.

import { type CoreApplication, type CoreServices, CoreSettingsError, coreTools, coreCheck } from "../tools/index.js";
import type { Check } from "../policy/index.js";
import type { Logger } from "../telemetry/index.js";
import type { Tool } from "../mcp/server/index.js";

/** Modules whose settings stand by themselves: those that cannot be used here have no tools, and the rest goes on. */
const APART: readonly (readonly (keyof CoreApplication)[])[] = [["filesystem", "linux"], ["llm"]];

export function usableTools(
  app: CoreApplication,
  services: CoreServices,
  log: Pick<Logger, "error">,
): { tools: Tool[]; voice: Check } {
  let rest = app;
  for (const modules of APART) {
    const alone = Object.fromEntries([["id", app.id], ...modules.map((each) => [each, app[each]])]) as CoreApplication;
    try {
      coreTools(alone, services);
    } catch (error) {
      if (!(error instanceof CoreSettingsError)) throw error;
      log.error("core tools of an application cannot be used here", { app: app.id, modules, problem: error.message });
      rest = { ...rest, ...Object.fromEntries(modules.map((each) => [each, undefined])) };
    }
  }
  return { tools: coreTools(rest, services), voice: coreCheck(rest, services) };
}
