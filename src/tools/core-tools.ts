// Which tools an application has: those whose settings it has.

import type { Policy } from "../host/index.js";
import type { Tool } from "../mcp/server/index.js";
import { type Check, PERMIT } from "../policy/index.js";
import { type CoreApplication, type CoreServices, CoreSettingsError, type ToolOwner } from "./application.js";
import { frameworkTools } from "./framework.js";
import { hostCheckResult } from "./host/adapter.js";
import { decideFilesystem, filesystemTools } from "./host/filesystem.js";
import { decideCommand, EXECUTE_COMMAND, linuxTools } from "./host/linux.js";
import { hostPolicyOf } from "./host/policy.js";
import { llmTools } from "./llm/generate.js";
import { definitionTools } from "./state/definition-tools.js";
import type { StateSettings } from "./state/settings.js";
import { valueTools } from "./state/value-tools.js";

/** Throws a `CoreSettingsError` when the settings cannot be used. */
export function coreTools(app: CoreApplication, services: CoreServices): Tool[] {
  const owner = { app, services };
  const policy = hostPolicyOf(app, services);
  return [
    ...frameworkTools(app, services),
    ...(app.state === undefined ? [] : fileTools(owner, app.state, services)),
    ...(services.values === undefined ? [] : valueTools(owner, services.values, app.state?.limits)),
    ...(app.llm === undefined ? [] : llmTools(app, app.llm, services)),
    ...(app.filesystem === undefined || policy === undefined ? [] : filesystemTools(owner, policy)),
    ...(policy === undefined ? [] : commandTools(owner, policy, services)),
  ];
}

function fileTools(owner: ToolOwner, settings: StateSettings, { history }: CoreServices): Tool[] {
  if (history === undefined) throw new CoreSettingsError(owner.app.id, "state needs a store for its history");
  return definitionTools(owner, settings, history);
}

function commandTools(owner: ToolOwner, policy: Policy, services: CoreServices): Tool[] {
  if (policy.commands.size === 0) return [];
  if (services.sandbox === undefined) throw new CoreSettingsError(owner.app.id, "linux needs a sandbox to run in");
  return linuxTools(owner, policy, services.sandbox);
}

// The application's allow list as a check of the gate: a call that it denies never reaches a tool.

/** For calls of this application; executing checks again. None where it has no allow list. */
export function coreChecks(app: CoreApplication, services: Pick<CoreServices, "protectedPaths">): Check[] {
  const policy = hostPolicyOf(app, services);
  if (policy === undefined) return [];
  const check: Check = ({ principal, target, arguments: args }) => {
    if (principal.app !== app.id || target.type !== "Tool") return PERMIT;
    const decision =
      target.name === EXECUTE_COMMAND ? decideCommand(policy, args) : decideFilesystem(policy, target.name, args);
    return decision === undefined ? PERMIT : hostCheckResult(decision);
  };
  return [check];
}
