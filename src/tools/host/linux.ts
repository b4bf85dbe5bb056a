// core.linux.executeCommand: a command of the application's own allow list, without a shell, in a sandbox of its own.

import {
  type DirectoryDecision,
  decideCmdRun,
  executeCmdRun,
  hostTools,
  type Policy,
  type Sandbox,
} from "../../host/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { Tool } from "../../mcp/server/index.js";
import { ownTool, type ToolOwner } from "../application.js";
import { hostResult, outputProgress } from "./adapter.js";

export const EXECUTE_COMMAND = "core.linux.executeCommand";

/** Longer than the longest time a command may be given: the host's own clock is the one that counts. */
const TOOL_TIMEOUT_MS = 2 * 60 * 60_000;

export function linuxTools(owner: ToolOwner, policy: Policy, sandbox: Sandbox): Tool[] {
  const { inputSchema, outputSchema, annotations } = hostCommand();
  return [
    ownTool(owner, {
      name: EXECUTE_COMMAND,
      title: "Run a command",
      description: `Runs one of these commands without a shell, in a sandbox, with limits on time and output: ${catalogText(policy)}.`,
      annotations: { ...annotations },
      input: inputWithCommand(inputSchema),
      output: outputSchema,
      timeoutMs: TOOL_TIMEOUT_MS,
      handler: async (args: JsonObject, context) => {
        const outcome = await executeCmdRun(policy, hostArguments(policy, args), {
          signal: context.signal,
          reqId: context.traceId,
          sandbox,
          // The gateway's own user can read the keys of every application.
          needsOwnUser: true,
          onOutput: outputProgress(context),
        });
        return { structuredContent: hostResult(EXECUTE_COMMAND, outcome) as unknown as JsonValue };
      },
    }),
  ];
}

export function decideCommand(policy: Policy, args: JsonObject): DirectoryDecision {
  return decideCmdRun(policy, hostArguments(policy, args));
}

function hostCommand() {
  const found = hostTools.find((tool) => tool.name === "cmd.run");
  if (found === undefined) throw new TypeError("the host has no cmd.run");
  return found;
}

const MAX_SHOWN = 40;

function catalogText(policy: Policy): string {
  const all = [...policy.commands.values()].map(({ id, description }) => (description ? `${id} (${description})` : id));
  const more = all.length - MAX_SHOWN;
  return all.slice(0, MAX_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** As `cmd.run` takes them, with `command` for `commandId`. */
function inputWithCommand(schema: JsonObject): JsonObject {
  const { commandId: _, ...properties } = isJsonObject(schema.properties) ? schema.properties : {};
  const command = {
    type: "string",
    minLength: 1,
    maxLength: 4096,
    description: "The command's id, or the absolute path of its program.",
  };
  return { ...schema, properties: { command, ...properties }, required: ["command"] };
}

/** A path stands for a command when exactly one of the allow list has that program. */
function hostArguments(policy: Policy, args: JsonObject): JsonObject {
  const { command, ...rest } = args;
  if (typeof command !== "string" || policy.commands.has(command)) return { commandId: command ?? "", ...rest };
  const same = [...policy.commands.values()].filter(({ executable }) => executable.path === command);
  return { commandId: same.length === 1 && same[0] !== undefined ? same[0].id : command.slice(0, 256), ...rest };
}
