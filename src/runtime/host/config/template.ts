// The policy a newcomer begins with: what was answered, and a remark on everything else that can be said.

import type { ProfileName } from "../../../host/index.js";

export interface TemplateAnswers {
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Curated commands that are on this machine. */
  readonly commands: readonly ProfileName[];
  /** Where editors find every field described. */
  readonly schema?: string | undefined;
}

const ABOUT: Readonly<Partial<Record<ProfileName, string>>> = {
  ls: "lists folders",
  find: "finds files by name, age and size; it cannot run or delete anything",
  grep: "searches in files",
  rg: "searches in files, quickly",
  git: "looks at history and changes",
};

export function firstPolicy({ read, write, commands, schema }: TemplateAnswers): string {
  return `# What an agent may do through \`portcullis host\`. Whatever is not listed here cannot be read, written or run.
#
#   portcullis policy validate                          is this file right?
#   portcullis policy explain fs.read '{"path":"…"}'    would this be allowed, and by which line?
#   portcullis doctor host                              what this machine gives to hold it
${schema === undefined ? "" : `# yaml-language-server: $schema=${schema}\n`}version: 1

# Folders that may be read, with everything below them. Links that lead out of them are refused.
${list("allowedRoots", read.map(quoted))}

# Folders that may be written to. A file is replaced only when the call says overwrite. Commands can write there too, if the
# rule says recursive and createIfMissing. What lies inside a repository's own .git stays closed.
${writeRules(write)}

# Files on network and FUSE file systems are refused; files with several names (hard links) too.
denyNetworkFS: true
hardLinks: deny

# The catalog: nothing else can be run, there is no shell, and commands see only the folders above.
# A profile knows its tool: options that run programs, write files or read foreign settings are refused.
# The description is what the agent reads.
# More with \`portcullis cmd add\`, for example: portcullis cmd add wc --exec /usr/bin/wc --allow -l --pattern '[\\w./-]+'
${catalog(commands)}

# required: a command runs only inside an operating-system sandbox. preferred: with what the machine has.
sandbox: required

# May commands reach the network? One that needs it can say \`network: true\` for itself.
network: false

limits:
  maxReadBytes: 5_000_000     # of one fs.read
  maxCmdConcurrency: 2        # commands at the same time

# Less for single clients, started with \`portcullis host --client <name>\`. A profile can only take away.
# profiles:
#   - client: cursor
#     writeRules: []
#     commands: [ls]

# A plain line for each request, beside the ledger. Contents are never in it, only their hashes.
logging:
  level: info
  redact: [env]
  maxBytes: 10_000_000        # the file is rotated past this size
  maxFiles: 5
`;
}

/** JSON's strings are YAML's; no path can end its own quotes. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

function list(name: string, items: readonly string[]): string {
  return items.length === 0 ? `${name}: []` : `${name}:\n${items.map((item) => `  - ${item}`).join("\n")}`;
}

function writeRules(folders: readonly string[]): string {
  return list(
    "writeRules",
    folders.map(
      (folder) =>
        `path: ${quoted(folder)}\n    recursive: true\n    createIfMissing: true\n    maxFileBytes: 10_000_000`,
    ),
  );
}

function catalog(commands: readonly ProfileName[]): string {
  const entries = commands.map((name) => {
    const about = ABOUT[name];
    return `id: ${name}\n    profile: ${name}${about === undefined ? "" : `\n    description: ${about}`}`;
  });
  return list("commands", entries);
}
