// core.state.*: definition files, and what happened to them.

import type { CallContext, Tool } from "../../mcp/server/index.js";
import { closedRecord, ownTool, type ToolOwner } from "../application.js";
import { type Author, notThere, Repository } from "./repository.js";
import type { StateSettings } from "./settings.js";
import type { StoredHistory } from "./stored.js";
import { applyUnifiedDiff } from "./unified-diff.js";

const PATH = {
  type: "string",
  minLength: 1,
  maxLength: 1024,
  description: "Relative path of the file, for example agents/writer.md.",
} as const;
const REVISION = { type: "string", description: "Names these contents; give it back as expectedRevision." } as const;
const EXPECTED = {
  type: ["string", "null"],
  maxLength: 64,
  description: "The revision the file must have now; null: it must not exist. Another one changes nothing.",
} as const;
const MESSAGE = { type: "string", maxLength: 500, description: "Why, for the history." } as const;
const COMMIT = { type: "string", description: "The commit in the history." } as const;
/** In characters; the limit in bytes is the application's own. */
const MAX_TEXT_CHARS = 16_000_000;
const MAX_HISTORY = 200;

const changedOutput = closedRecord(
  {
    path: { type: "string" },
    revision: { type: ["string", "null"], description: "Names the new contents; null when the file is gone." },
    commit: COMMIT,
    created: { type: "boolean" },
    changed: { type: "boolean", description: "False: the file already was like that, and there is no new commit." },
  },
  ["path", "revision", "commit", "created", "changed"],
);

const DESTRUCTIVE = { readOnlyHint: false, destructiveHint: true, openWorldHint: false };
const READ_ONLY = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };

export function definitionTools(owner: ToolOwner, settings: StateSettings, history: StoredHistory): Tool[] {
  const { app, services } = owner;
  const files = new Repository(settings, history, (message, fields) =>
    services.log.log("warning", message, { app: app.id, ...fields }),
  );
  return [
    readTool(owner, files, "core.state.getDefinitionFileContent"),
    readTool(owner, files, "core.state.getFileContent"),
    setTool(owner, files),
    diffTool(owner, files),
    deleteTool(owner, files),
    historyTool(owner, files),
  ];
}

function readTool(owner: ToolOwner, files: Repository, name: string): Tool {
  return ownTool(owner, {
    name,
    title: "Read a definition file",
    description: "Reads a definition file of this application, as it is now or as it was in a commit of its history.",
    annotations: READ_ONLY,
    input: closedRecord(
      {
        path: PATH,
        commit: { type: "string", maxLength: 64, description: "A commit of the history; the newest by default." },
      },
      ["path"],
    ),
    output: closedRecord({ path: { type: "string" }, content: { type: "string" }, revision: REVISION }, [
      "path",
      "content",
      "revision",
    ]),
    handler: async ({ path, commit }) => {
      const file = await files.read(path, commit);
      if (file === undefined) throw notThere(path);
      return { structuredContent: { path, ...file } };
    },
  });
}

function setTool(owner: ToolOwner, files: Repository): Tool {
  return ownTool(owner, {
    name: "core.state.setDefinitionFileContent",
    title: "Write a definition file",
    description: "Creates or replaces a definition file of this application. Earlier contents stay in the history.",
    annotations: { ...DESTRUCTIVE, idempotentHint: true },
    input: closedRecord(
      {
        path: PATH,
        content: { type: "string", maxLength: MAX_TEXT_CHARS },
        expectedRevision: EXPECTED,
        message: MESSAGE,
      },
      ["path", "content"],
    ),
    output: changedOutput,
    handler: async ({ path, content, expectedRevision, message }, context) => {
      const done = await files.change({
        path,
        edit: () => content,
        ...changeOf(context, message ?? `Set ${path}`, expectedRevision),
      });
      return { structuredContent: { path, ...done, revision: done.revision ?? null } };
    },
  });
}

function diffTool(owner: ToolOwner, files: Repository): Tool {
  return ownTool(owner, {
    name: "core.state.applyDiffToDefinitionFile",
    title: "Apply a diff to a definition file",
    description:
      "Applies a unified diff to one definition file, whole or not at all: every hunk at the line it names, every context line exactly as it is.",
    annotations: { ...DESTRUCTIVE, idempotentHint: false },
    input: closedRecord(
      {
        path: PATH,
        diff: { type: "string", minLength: 1, maxLength: MAX_TEXT_CHARS, description: "As `diff -u` writes it." },
        expectedRevision: EXPECTED,
        message: MESSAGE,
      },
      ["path", "diff"],
    ),
    output: changedOutput,
    handler: async ({ path, diff, expectedRevision, message }, context) => {
      const done = await files.change({
        path,
        edit: async (current) => applyUnifiedDiff(path, await current(), diff),
        ...changeOf(context, message ?? `Apply a diff to ${path}`, expectedRevision),
      });
      return { structuredContent: { path, ...done, revision: done.revision ?? null } };
    },
  });
}

function deleteTool(owner: ToolOwner, files: Repository): Tool {
  return ownTool(owner, {
    name: "core.state.deleteDefinitionFile",
    title: "Delete a definition file",
    description: "Deletes a definition file of this application. Its contents stay in the history.",
    annotations: { ...DESTRUCTIVE, idempotentHint: false },
    input: closedRecord({ path: PATH, expectedRevision: EXPECTED, message: MESSAGE }, ["path"]),
    output: changedOutput,
    handler: async ({ path, expectedRevision, message }, context) => {
      const done = await files.change({
        path,
        edit: () => undefined,
        ...changeOf(context, message ?? `Delete ${path}`, expectedRevision),
      });
      return { structuredContent: { path, ...done, created: false, revision: null } };
    },
  });
}

function historyTool(owner: ToolOwner, files: Repository): Tool {
  return ownTool(owner, {
    name: "core.state.getDefinitionFileHistory",
    title: "History of a definition file",
    description: "Lists the commits that changed a definition file, newest first.",
    annotations: READ_ONLY,
    input: closedRecord({ path: PATH, limit: { type: "integer", minimum: 1, maximum: MAX_HISTORY } }, ["path"]),
    output: closedRecord(
      {
        path: { type: "string" },
        history: {
          type: "array",
          items: closedRecord(
            {
              commit: COMMIT,
              at: { type: "string" },
              agent: { type: "string" },
              message: { type: "string" },
              trace: { type: "string", description: "Trace id of the call that made the change." },
            },
            ["commit", "at", "agent", "message", "trace"],
          ),
        },
      },
      ["path", "history"],
    ),
    handler: async ({ path, limit }) => ({
      structuredContent: { path, history: await files.history(path, limit ?? 20) },
    }),
  });
}

function changeOf(
  { app, agent, traceId, signal }: CallContext,
  message: string,
  expectedRevision: string | null | undefined,
): { author: Author; message: string; signal: AbortSignal; expectedRevision?: string | null } {
  return {
    author: { app, agent, traceId },
    message,
    signal,
    ...(expectedRevision === undefined ? {} : { expectedRevision }),
  };
}
