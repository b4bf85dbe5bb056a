// core.framework.*: the application's own settings, and a line in the operator's log.

import { isJsonObject, type JsonObject, type JsonValue } from "../mcp/index.js";
import type { Tool } from "../mcp/server/index.js";
import { visible } from "../telemetry/index.js";
import { type CoreApplication, type CoreServices, closedRecord, ownTool } from "./application.js";

const MAX_MESSAGE_CHARS = 2_000;
const MAX_FIELDS = 20;
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const;

export function frameworkTools(app: CoreApplication, services: CoreServices): Tool[] {
  const owner = { app, services };
  return [
    ownTool(owner, {
      name: "core.framework.getConfigValue",
      title: "Read a setting",
      description: "Reads a setting of this application: a key, or the way to a nested one with dots between the keys.",
      annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
      input: closedRecord({ key: { type: "string", minLength: 1, maxLength: 512 } }, ["key"]),
      output: closedRecord(
        {
          key: { type: "string" },
          found: { type: "boolean" },
          value: { description: "Absent when there is no such setting." },
        },
        ["key", "found"],
      ),
      handler: ({ key }) => {
        const value = configValue(app.config ?? {}, key);
        return { structuredContent: { key, found: value !== undefined, ...(value === undefined ? {} : { value }) } };
      },
    }),
    ownTool(owner, {
      name: "core.framework.logFrameworkMessage",
      title: "Write to the operator's log",
      description: "Writes one line to the operator's log and into the trace of this call.",
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
      input: closedRecord(
        {
          level: { enum: LEVELS, description: "notice by default." },
          message: { type: "string", minLength: 1, maxLength: MAX_MESSAGE_CHARS },
          fields: {
            type: "object",
            maxProperties: MAX_FIELDS,
            propertyNames: { maxLength: 100 },
            additionalProperties: { type: ["string", "number", "boolean", "null"], maxLength: MAX_MESSAGE_CHARS },
            description: "Facts beside the message.",
          },
        },
        ["message"],
      ),
      output: closedRecord({ logged: { type: "boolean" } }, ["logged"]),
      handler: ({ level, message, fields }, { agent, traceId }) => {
        // The gateway's own facts stand outside of `said`, where no name of the caller's can take their place.
        const said = fields === undefined ? {} : { said: escaped(fields as JsonObject) };
        services.log.log(
          level ?? "notice",
          visible(message),
          { app: app.id, agent, source: "agent", ...said },
          traceId,
        );
        services.note?.(app.id, traceId, level ?? "notice", message);
        return { structuredContent: { logged: true } };
      },
    }),
  ];
}

/** The whole key first, so that a key with dots in it can be read. Own properties only: `constructor` is not a setting. */
function configValue(config: JsonObject, key: string): JsonValue | undefined {
  if (Object.hasOwn(config, key)) return config[key];
  let value: JsonValue | undefined = config;
  for (const name of key.split(".")) {
    if (!isJsonObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

function escaped(fields: JsonObject): JsonObject {
  const safe = Object.entries(fields).map(([name, value]) => [
    visible(name),
    typeof value === "string" ? visible(value) : value,
  ]);
  return Object.fromEntries(safe) as JsonObject;
}
