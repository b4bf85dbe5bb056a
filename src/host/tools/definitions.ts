// The three tools as MCP lists them. There are no others.

import {
  flag,
  type Infer,
  integer,
  type JsonObject,
  list,
  object,
  oneOf,
  optional,
  required,
  textMap,
  textShape,
} from "../../mcp/index.js";
import type { ToolName } from "../audit.js";

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_PATH_CHARS = 4095;
const MAX_ARGS = 256;
const MAX_ARG_CHARS = 65_536;
const MAX_DATA_CHARS = 512_000_000;

const encoding = oneOf("utf8, or base64 for bytes that are not text.", ["utf8", "base64"]);

export const fsReadInput = object("Read a regular file inside an allowed root.", {
  path: required(
    textShape("Absolute path, ~/… or relative to the first allowed root.", { min: 1, max: MAX_PATH_CHARS }),
  ),
  offset: optional(integer("First byte to read; 0 by default.", { min: 0, max: MAX_SAFE })),
  length: optional(
    integer("Bytes to read; to the end of the file by default. At most the policy's maxReadBytes are returned.", {
      min: 0,
      max: MAX_SAFE,
    }),
  ),
  encoding: optional(encoding),
});
export type FsReadInput = Infer<typeof fsReadInput>;

export interface FsReadResult {
  readonly data: string;
  readonly bytesRead: number;
  readonly sha256: string;
  /** Size of the whole file. */
  readonly size: number;
  /** Present when `maxReadBytes` shortened what was asked for. */
  readonly truncated?: true;
  readonly warnings?: readonly "OUTPUT_TRUNCATED"[];
}

export const fsReadOutput: JsonObject = {
  type: "object",
  properties: {
    data: { type: "string", description: "The bytes, in the encoding asked for." },
    bytesRead: { type: "integer", minimum: 0 },
    sha256: { type: "string", description: "Of the bytes in data.", pattern: "^[0-9a-f]{64}$" },
    size: { type: "integer", minimum: 0, description: "Size of the whole file." },
    truncated: { const: true, description: "maxReadBytes shortened the read; continue at offset + bytesRead." },
    warnings: { type: "array", items: { enum: ["OUTPUT_TRUNCATED"] } },
  },
  required: ["data", "bytesRead", "sha256", "size"],
  additionalProperties: false,
};

export const fsWriteInput = object("Write a file whole, atomically, inside a writable root.", {
  path: required(
    textShape("Absolute path, ~/… or relative to the first allowed root.", { min: 1, max: MAX_PATH_CHARS }),
  ),
  data: required(textShape("The new contents.", { max: MAX_DATA_CHARS })),
  encoding: optional(encoding),
  create: optional(flag("May the file be created? true by default.")),
  overwrite: optional(flag("May an existing file be replaced? false by default.")),
});
export type FsWriteInput = Infer<typeof fsWriteInput>;

export interface FsWriteResult {
  readonly bytesWritten: number;
  readonly sha256: string;
}

export const fsWriteOutput: JsonObject = {
  type: "object",
  properties: {
    bytesWritten: { type: "integer", minimum: 0 },
    sha256: { type: "string", pattern: "^[0-9a-f]{64}$" },
  },
  required: ["bytesWritten", "sha256"],
  additionalProperties: false,
};

export const cmdRunInput = object("Run a command of the policy's catalog, without a shell.", {
  commandId: required(textShape("The command's id.", { min: 1, max: 256 })),
  args: optional(
    list("Arguments, one an element.", textShape("An argument.", { max: MAX_ARG_CHARS }), { max: MAX_ARGS }),
  ),
  cwd: optional(textShape("Working directory inside an allowed root.", { min: 1, max: MAX_PATH_CHARS })),
  stdin: optional(textShape("Text for its standard input.", { max: 100_000_000 })),
  env: optional(
    textMap("Variables that the catalog entry allows.", textShape("A value.", { max: 32_768 }), { max: 100 }),
  ),
  timeoutMs: optional(integer("Shorter than the catalog's, if given.", { min: 1, max: 86_400_000 })),
});
export type CmdRunInput = Infer<typeof cmdRunInput>;

const protectionsSchema: JsonObject = {
  type: "object",
  description: "Which protections were in force.",
  properties: {
    files: { enum: ["view+landlock", "view", "landlock", "bubblewrap", "none"] },
    network: { enum: ["open", "namespace+seccomp", "namespace", "seccomp", "not restricted"] },
    processTree: { enum: ["pid-namespace", "cgroup", "subreaper", "process-group"] },
    seccomp: { type: "boolean" },
    noNewPrivileges: { type: "boolean" },
    user: { type: ["integer", "string"] },
    userNamespace: { type: "boolean" },
    rlimits: { type: "boolean" },
    cgroup: { type: "array", items: { type: "string" } },
    parentDeathSignal: { type: "boolean" },
    notes: { type: "array", items: { type: "string" } },
    gaps: { type: "array", items: { type: "string" }, description: "What they leave open, or take away." },
    openMounts: { type: "array", items: { type: "string" }, description: "Mounted below the roots and not kept out." },
  },
};

export const cmdRunOutput: JsonObject = {
  type: "object",
  properties: {
    exitCode: { type: ["integer", "null"], description: "null when a signal ended it." },
    signal: { type: ["string", "null"] },
    stdout: { type: "string" },
    stderr: { type: "string" },
    timedOut: { type: "boolean" },
    truncated: { type: "boolean", description: "stdout and stderr together were longer than maxOutputBytes." },
    warnings: { type: "array", items: { enum: ["OUTPUT_TRUNCATED"] } },
    protections: protectionsSchema,
  },
  required: ["exitCode", "signal", "stdout", "stderr", "timedOut", "truncated", "warnings", "protections"],
  additionalProperties: false,
};

export interface HostToolDefinition {
  readonly name: ToolName;
  readonly title: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema: JsonObject;
  readonly annotations: {
    readonly readOnlyHint: boolean;
    readonly destructiveHint: boolean;
    readonly idempotentHint: boolean;
    readonly openWorldHint: boolean;
  };
}

export const hostTools: readonly HostToolDefinition[] = [
  {
    name: "fs.read",
    title: "Read a file",
    description: "Reads a regular file inside an allowed root, whole or in parts, as text or base64.",
    inputSchema: fsReadInput.schema,
    outputSchema: fsReadOutput,
    annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  },
  {
    name: "fs.write",
    title: "Write a file",
    description: "Writes a whole file inside a writable root: completely or not at all.",
    inputSchema: fsWriteInput.schema,
    outputSchema: fsWriteOutput,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  },
  {
    name: "cmd.run",
    title: "Run a command",
    description:
      "Runs a command of the operator's catalog without a shell, in a sandbox, with limits on time and output.",
    inputSchema: cmdRunInput.schema,
    outputSchema: cmdRunOutput,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  },
];
