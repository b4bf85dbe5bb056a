// core.state.*: runtime values.

import { Fault } from "../../mcp/index.js";
import type { Tool } from "../../mcp/server/index.js";
import { closedRecord, ownTool, type ToolOwner } from "../application.js";
import { DEFAULT_STATE_LIMITS, type StateLimits } from "./settings.js";
import type { RuntimeValues } from "./stored.js";

const VERSION = {
  type: "integer",
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "The version the value must have now; 0: there must be none. Another one changes nothing.",
} as const;
const CURRENT = { type: "integer", description: "Give it back as expectedVersion." } as const;
const EXPIRES = { type: "string", description: "When the value goes away; absent: never." } as const;

export function valueTools(owner: ToolOwner, values: RuntimeValues, given: Partial<StateLimits> = {}): Tool[] {
  const limits = { ...DEFAULT_STATE_LIMITS, ...given };
  const key = {
    type: "string",
    minLength: 1,
    maxLength: limits.maxKeyChars,
    description: "Name of the value.",
  } as const;
  return [
    getTool(owner, values, key),
    setTool(owner, values, key, limits),
    ownTool(owner, {
      name: "core.state.deleteRuntimeValue",
      title: "Delete a runtime value",
      description: "Deletes a runtime value of this application.",
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
      input: closedRecord({ key, expectedVersion: VERSION }, ["key"]),
      output: closedRecord({ key: { type: "string" }, deleted: { type: "boolean" } }, ["key", "deleted"]),
      handler: async (args) => {
        checkKey(args.key);
        const deleted = await values.remove(args.key, args.expectedVersion);
        if (!deleted && args.expectedVersion !== undefined) await conflict(values, args.key);
        return { structuredContent: { key: args.key, deleted } };
      },
    }),
  ];
}

type KeySchema = { readonly type: "string"; readonly minLength: 1; readonly maxLength: number };

function getTool(owner: ToolOwner, values: RuntimeValues, key: KeySchema): Tool {
  return ownTool(owner, {
    name: "core.state.getRuntimeValue",
    title: "Read a runtime value",
    description: "Reads a runtime value of this application; `found` says whether there is one.",
    annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
    input: closedRecord({ key }, ["key"]),
    output: closedRecord(
      {
        key: { type: "string" },
        found: { type: "boolean" },
        value: { description: "Any JSON value; absent when there is none." },
        version: CURRENT,
        expiresAt: EXPIRES,
      },
      ["key", "found", "version"],
    ),
    handler: async (args) => {
      checkKey(args.key);
      const found = await values.get(args.key);
      if (found === undefined) return { structuredContent: { key: args.key, found: false, version: 0 } };
      const { value, version } = found;
      return { structuredContent: { key: args.key, found: true, value, version, ...expiry(found.expiresAt) } };
    },
  });
}

function setTool(owner: ToolOwner, values: RuntimeValues, key: KeySchema, limits: StateLimits): Tool {
  return ownTool(owner, {
    name: "core.state.setRuntimeValue",
    title: "Set a runtime value",
    description:
      "Sets a runtime value of this application, for good or for a time; with expectedVersion only if it has not changed since.",
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
    input: closedRecord(
      {
        key,
        value: { description: "Any JSON value." },
        ttlMs: {
          type: "integer",
          minimum: 1,
          maximum: limits.maxTtlMs,
          description: "Milliseconds until it goes away.",
        },
        expectedVersion: VERSION,
      },
      ["key", "value"],
    ),
    output: closedRecord({ key: { type: "string" }, version: CURRENT, expiresAt: EXPIRES }, ["key", "version"]),
    handler: async (args) => {
      checkKey(args.key);
      const bytes = Buffer.byteLength(JSON.stringify(args.value));
      if (bytes > limits.maxValueBytes) {
        throw new Fault("ToolExecution", `the value has ${bytes} bytes; ${limits.maxValueBytes} are allowed`, {
          rule: "maxValueBytes",
          field: "value",
        });
      }
      const stored = await values.set(args.key, args.value, {
        ...(args.ttlMs === undefined ? {} : { ttlMs: args.ttlMs }),
        ...(args.expectedVersion === undefined ? {} : { version: args.expectedVersion }),
      });
      if (stored === undefined) return await conflict(values, args.key);
      return { structuredContent: { key: args.key, version: stored.version, ...expiry(stored.expiresAt) } };
    },
  });
}

function expiry(expiresAt: number | undefined): { expiresAt?: string } {
  return expiresAt === undefined ? {} : { expiresAt: new Date(expiresAt).toISOString() };
}

function checkKey(key: string): void {
  if (!/[\p{Cc}\p{Cs}]/u.test(key)) return;
  throw new Fault("ValidationError", "key contains control characters or half a character", {
    rule: "runtimeValueKey",
    field: "key",
  });
}

async function conflict(values: RuntimeValues, key: string): Promise<never> {
  const version = (await values.get(key))?.version ?? 0;
  throw new Fault("ToolExecution", `the value has version ${version} now; nothing was changed`, {
    rule: "conflict",
    field: "expectedVersion",
    suggestions: ["read the value again and decide anew"],
    extra: { version },
  });
}
