// core.filesystem.*: files and directories inside the application's own directories.

import {
  type DirectoryDecision,
  decideBy,
  decideFsRead,
  decideFsWrite,
  executeBy,
  executeFsRead,
  executeFsWrite,
  hostTools,
  isDenial,
  type ListArguments,
  type MoveArguments,
  type Policy,
  type Prepare,
  prepareDeleteDirectory,
  prepareDeleteFile,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
  prepareStat,
} from "../../host/index.js";
import type { JsonObject, JsonValue } from "../../mcp/index.js";
import type { CallContext, Tool } from "../../mcp/server/index.js";
import { ownTool, type ToolOwner } from "../application.js";
import { hostFault, hostResult } from "./adapter.js";

interface FileTool {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly input: JsonObject;
  readonly output: JsonObject;
  readonly changes: boolean;
  decide(policy: Policy, args: JsonObject): DirectoryDecision;
  execute(policy: Policy, args: JsonObject, context: CallContext): Promise<JsonValue>;
}

const path = {
  type: "string",
  minLength: 1,
  maxLength: 4095,
  description: "Absolute, or relative to the application's first directory.",
};
const type = { enum: ["file", "folder", "link", "other"] };
const size = { type: "integer", minimum: 0, description: "Bytes; of files only." };
const modifiedAt = { type: "string", description: "Time of the last change." };

/** As the host's own tools have them: plain JSON. */
function record(properties: JsonObject, required: string[]): JsonObject {
  return { type: "object", properties, required, additionalProperties: false };
}

function fromHost(name: "fs.read" | "fs.write"): Pick<FileTool, "input" | "output" | "description"> {
  const found = hostTools.find((tool) => tool.name === name);
  if (found === undefined) throw new TypeError(`the host has no ${name}`);
  return { input: found.inputSchema, output: found.outputSchema, description: found.description };
}

/** Arguments were checked against the input schema before they get here. */
function directoryTool<A, R>(prepare: Prepare<A, R>): Pick<FileTool, "decide" | "execute"> {
  return {
    decide: (policy, args) => decideBy(prepare, policy, args as A),
    execute: async (policy, args) => {
      const result = executeBy(prepare, policy, args as A) as object;
      if (isDenial(result)) throw hostFault("core.filesystem", result);
      return result as JsonValue;
    },
  };
}

const FILE_TOOLS: readonly FileTool[] = [
  {
    name: "core.filesystem.readFile",
    title: "Read a file",
    ...fromHost("fs.read"),
    changes: false,
    decide: decideFsRead,
    execute: async (policy, args, { signal, traceId: reqId }) =>
      hostResult("core.filesystem", await executeFsRead(policy, args, { signal, reqId })) as unknown as JsonValue,
  },
  {
    name: "core.filesystem.writeFile",
    title: "Write a file",
    ...fromHost("fs.write"),
    changes: true,
    decide: decideFsWrite,
    execute: async (policy, args, { signal, traceId: reqId }) =>
      hostResult("core.filesystem", await executeFsWrite(policy, args, { signal, reqId })) as unknown as JsonValue,
  },
  {
    name: "core.filesystem.listDirectory",
    title: "List a directory",
    description: "Lists what is in a directory, by name, without following links.",
    input: record(
      {
        path,
        limit: { type: "integer", minimum: 1, maximum: 5000, description: "1000 by default." },
        after: {
          type: "string",
          maxLength: 255,
          description: "Only names behind this one: the last of the page before.",
        },
      },
      ["path"],
    ),
    output: record(
      {
        entries: {
          type: "array",
          items: record({ name: { type: "string" }, type, size, modifiedAt }, ["name", "type", "modifiedAt"]),
        },
        truncated: { type: "boolean", description: "There are more behind the last name." },
      },
      ["entries", "truncated"],
    ),
    changes: false,
    ...directoryTool<ListArguments, unknown>(prepareList),
  },
  {
    name: "core.filesystem.stat",
    title: "What a path is",
    description: "Says whether a path is a file or a directory, how large it is and when it was changed.",
    input: record({ path }, ["path"]),
    output: record({ type, size, modifiedAt }, ["type", "modifiedAt"]),
    changes: false,
    ...directoryTool<{ path: string }, unknown>(prepareStat),
  },
  {
    name: "core.filesystem.makeDirectory",
    title: "Make a directory",
    description: "Makes one directory inside a writable root; `created` is false when it was there.",
    input: record({ path }, ["path"]),
    output: record({ created: { type: "boolean" } }, ["created"]),
    changes: true,
    ...directoryTool<{ path: string }, unknown>(prepareMakeDirectory),
  },
  {
    name: "core.filesystem.deleteFile",
    title: "Delete a file",
    description: "Deletes a file, or a link but not what it leads to, inside a writable root.",
    input: record({ path }, ["path"]),
    output: record({}, []),
    changes: true,
    ...directoryTool<{ path: string }, unknown>(prepareDeleteFile),
  },
  {
    name: "core.filesystem.deleteDirectory",
    title: "Delete an empty directory",
    description: "Deletes a directory inside a writable root if it is empty.",
    input: record({ path }, ["path"]),
    output: record({}, []),
    changes: true,
    ...directoryTool<{ path: string }, unknown>(prepareDeleteDirectory),
  },
  {
    name: "core.filesystem.move",
    title: "Move or rename",
    description: "Moves a file or directory inside writable roots, at once or not at all.",
    input: record(
      {
        from: path,
        to: path,
        overwrite: { type: "boolean", description: "May an existing file be replaced? false by default." },
      },
      ["from", "to"],
    ),
    output: record({ replaced: { type: "boolean" } }, ["replaced"]),
    changes: true,
    ...directoryTool<MoveArguments, unknown>(prepareMove),
  },
];

export function filesystemTools(owner: ToolOwner, policy: Policy): Tool[] {
  return FILE_TOOLS.map(({ name, title, description, input, output, changes, execute }) =>
    ownTool(owner, {
      name,
      title,
      description,
      annotations: {
        readOnlyHint: !changes,
        destructiveHint: changes,
        idempotentHint: !changes,
        openWorldHint: false,
      },
      input,
      output,
      handler: async (args: JsonObject, context) => ({ structuredContent: await execute(policy, args, context) }),
    }),
  );
}

export function decideFilesystem(policy: Policy, name: string, args: JsonObject): DirectoryDecision | undefined {
  return FILE_TOOLS.find((tool) => tool.name === name)?.decide(policy, args);
}
