// policy.yaml, field by field. The loader checks against this description and policy.schema.json is printed from it.

import {
  byDefault,
  flag,
  type Infer,
  integer,
  type JsonObject,
  list,
  object,
  oneOf,
  optional,
  required,
  type Shape,
  textShape,
} from "../../mcp/index.js";

const MAX_PATH_CHARS = 4095;
const MEGABYTE = 1_000_000;
const GIGABYTE = 1_000_000_000;
const HOUR_MS = 3_600_000;

/** Numbers in the file may have underscores, which YAML 1.2 editors take for strings. */
function count(about: string, rule: { min: number; max: number }): Shape<number> {
  const { description: _, ...number } = integer(about, rule).schema;
  return {
    ...integer(about, rule),
    schema: { description: about, anyOf: [number, { type: "string", pattern: "^[0-9]+(_[0-9]+)+$" }] },
  };
}

const path = (about: string) => textShape(about, { min: 1, max: MAX_PATH_CHARS });

const PLATFORMS = ["linux", "macos", "windows"] as const;
export const PROFILE_NAMES = [
  "awk",
  "cat",
  "curl",
  "find",
  "git",
  "grep",
  "jq",
  "ls",
  "make",
  "npm",
  "rg",
  "sed",
  "tar",
] as const;
export type ProfileName = (typeof PROFILE_NAMES)[number];

const pattern = object(
  "A whole argument that matches is allowed. It is anchored at both ends by the host, and matches an argument that begins with a dash only if it begins with one itself.",
  {
    type: byDefault(oneOf("The kind of pattern.", ["regex"]), "regex"),
    value: required(textShape("A JavaScript regular expression.", { min: 1, max: 2000 })),
  },
);

const literal = textShape("One literal argument.", { max: 4096 });

const args = object("What a caller may pass, and what is always passed.", {
  allow: byDefault(list("Literal arguments that are allowed.", literal, { max: 500 }), []),
  fixed: byDefault(list("Arguments put before the caller's, always.", literal, { max: 100 }), []),
  patterns: byDefault(list("Patterns; an argument that matches one as a whole is allowed.", pattern, { max: 100 }), []),
});

const processLimits = {
  maxMemoryBytes: optional(count("Memory of one process of a command.", { min: 16 * MEGABYTE, max: 1000 * GIGABYTE })),
  maxProcesses: optional(count("Processes and threads of one command.", { min: 1, max: 100_000 })),
  maxOpenFiles: optional(count("Open files of one process.", { min: 8, max: 1_000_000 })),
  maxCpuSeconds: optional(count("Processor seconds of one process.", { min: 1, max: 86_400 })),
};

const command = object("One command that callers may run, by its id.", {
  id: required(
    textShape("The name callers use.", {
      min: 1,
      max: 64,
      pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$",
      patternSays: "must begin with a letter or digit and hold only letters, digits, dots, dashes and underscores",
    }),
  ),
  description: optional(textShape("What it is for; shown to callers.", { max: 500 })),
  exec: optional(
    path("Absolute path of the program, or a name looked up once at load. With `profile` it may be left out."),
  ),
  profile: optional(oneOf("A curated wrapper that makes the tool's own escape hatches harmless.", PROFILE_NAMES)),
  args: optional(args),
  cwdPolicy: byDefault(
    oneOf("Where it runs: in a directory below a root, in the directory `cwd`, or in none of the caller's.", [
      "withinRoot",
      "fixed",
      "none",
    ]),
    "withinRoot",
  ),
  cwd: optional(path("The directory for cwdPolicy: fixed.")),
  envAllowlist: byDefault(
    list(
      "Names of variables a caller may set.",
      textShape("A variable's name.", {
        min: 1,
        max: 128,
        pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
        patternSays: "must be a variable's name: letters, digits and underscores, not beginning with a digit",
      }),
      { max: 100 },
    ),
    [],
  ),
  timeoutMs: byDefault(
    count("The command and all its children are killed after this time.", { min: 1, max: HOUR_MS }),
    20_000,
  ),
  maxOutputBytes: byDefault(count("Cap over stdout and stderr together.", { min: 1, max: 100 * MEGABYTE }), 1_000_000),
  platform: optional(list("Only on these systems.", oneOf("A system.", PLATFORMS), { max: 3 })),
  network: optional(flag("May it reach the network? Overrides the file's own `network`.")),
  sandbox: optional(
    oneOf("Overrides the file's own `sandbox`, towards stricter only.", ["required", "preferred", "off"]),
  ),
  mounts: byDefault(
    list("More paths that this command may read, for example a tool chain.", path("An absolute path."), { max: 32 }),
    [],
  ),
  execFromRoots: optional(flag("May it start programs that lie in the roots? Builds and test runs need it.")),
  limits: optional(object("Overrides of the limits for one command.", processLimits)),
});

const writeRule = object("A directory in which files may be written.", {
  path: required(path("The directory.")),
  recursive: byDefault(flag("Also in directories below it."), false),
  maxFileBytes: byDefault(count("Largest file.", { min: 0, max: 10 * GIGABYTE }), 10_000_000),
  createIfMissing: byDefault(flag("May files (and directories for them) be created, not only replaced?"), false),
  repositoryInternals: byDefault(
    flag(
      "May the insides of repositories (.git, .hg) be written? Hooks and settings in there run outside any sandbox.",
    ),
    false,
  ),
});

const logging = object("The audit export.", {
  level: byDefault(oneOf("How much the host says on stderr.", ["debug", "info", "warn", "error"]), "info"),
  file: optional(path("A JSONL file; the ledger is kept in any case.")),
  redact: byDefault(
    list("Fields whose values are not written.", oneOf("A field.", ["env", "path", "cwd", "args"]), { max: 4 }),
    ["env"],
  ),
  maxBytes: byDefault(count("The file is rotated past this size.", { min: 10_000, max: 10 * GIGABYTE }), 10_000_000),
  maxFiles: byDefault(count("Rotated files that are kept.", { min: 1, max: 1000 }), 5),
});

const limits = object("Bounds of every call.", {
  maxReadBytes: byDefault(count("Bytes of one fs.read.", { min: 1, max: GIGABYTE }), 5_000_000),
  maxCmdConcurrency: byDefault(count("Commands that run at the same time.", { min: 1, max: 64 }), 2),
  maxCmdQueue: byDefault(count("Calls that may wait for their turn.", { min: 0, max: 10_000 }), 16),
  maxCmdQueueMs: byDefault(count("How long one may wait.", { min: 1, max: HOUR_MS }), 60_000),
  maxStdinBytes: byDefault(count("Bytes of `stdin`.", { min: 0, max: 16 * MEGABYTE }), 1_000_000),
  ...processLimits,
});

const clientProfile = object("A tighter policy for one client. It can take away, never add.", {
  client: required(
    textShape("The client's name as identity knows it, never what the client says of itself.", { min: 1, max: 200 }),
  ),
  allowedRoots: optional(list("Only these; each must lie in a root above.", path("A directory."), { max: 64 })),
  writeRules: optional(list("Only these; each must lie in a write rule above.", writeRule, { max: 64 })),
  commands: optional(list("Only these command ids.", textShape("A command id.", { min: 1, max: 64 }), { max: 200 })),
  network: optional(flag("false takes the network from every command.")),
  maxReadBytes: optional(count("Bytes of one fs.read.", { min: 1, max: GIGABYTE })),
  maxCmdConcurrency: optional(count("Commands that run at the same time.", { min: 1, max: 64 })),
});

const runAs = object("The user that commands run as when the host is started by root.", {
  uid: required(count("User id, not 0.", { min: 1, max: 4_294_967_294 })),
  gid: required(count("Group id, not 0.", { min: 1, max: 4_294_967_294 })),
});

export const policyDocument = object("Portcullis host policy: what an agent may read, write and run.", {
  version: byDefault(oneOf("Version of this format.", [1]), 1),
  denyNetworkFS: byDefault(flag("Refuse files on network and FUSE file systems."), true),
  hardLinks: byDefault(
    oneOf("Files with more than one name: another may lie outside the roots.", ["deny", "allow"]),
    "deny",
  ),
  allowedRoots: byDefault(list("Directories that may be read.", path("A directory; ~ is your home."), { max: 64 }), []),
  writeRules: byDefault(list("Directories that may be written to.", writeRule, { max: 64 }), []),
  commands: byDefault(list("The command catalog; nothing else can be run.", command, { max: 200 }), []),
  network: byDefault(flag("May commands reach the network unless they say otherwise?"), false),
  sandbox: byDefault(
    oneOf("required: no command runs without an operating-system sandbox; preferred: use what there is; off.", [
      "required",
      "preferred",
      "off",
    ]),
    "required",
  ),
  runAs: optional(runAs),
  logging: optional(logging),
  limits: optional(limits),
  profiles: byDefault(list("Tighter policies for single clients.", clientProfile, { max: 100 }), []),
});

export type PolicyDocument = Infer<typeof policyDocument>;
export type CommandDocument = PolicyDocument["commands"][number];
export type ClientDocument = PolicyDocument["profiles"][number];
export type LimitsDocument = Infer<typeof limits>;
export type LoggingDocument = Infer<typeof logging>;
export type SandboxMode = PolicyDocument["sandbox"];

/** Sections that may be left out are checked as if they were empty, so that their defaults stand in one place only. */
export function defaultsOf(document: PolicyDocument): { limits: LimitsDocument; logging: LoggingDocument } {
  const fill = <T>(given: T | undefined, shape: { check(v: unknown, p: [], e: []): T | undefined }): T => {
    const value = given ?? shape.check({}, [], []);
    if (value === undefined) throw new TypeError("a section without required fields has defaults");
    return value;
  };
  return { limits: fill(document.limits, limits), logging: fill(document.logging, logging) };
}

// policy.schema.json for editors: printed from the description that the loader checks against.

export function policySchema(): JsonObject {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Portcullis host policy",
    ...policyDocument.schema,
  };
}

export function policySchemaText(): string {
  return `${JSON.stringify(policySchema(), null, 2)}\n`;
}
