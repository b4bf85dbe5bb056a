// `portcullis init host`: two questions, a commented policy, and the lines a client needs.

import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";
import * as prompts from "@clack/prompts";
import type { Command } from "commander";
import type { HostPolicyProblem, Policy, ProfileName } from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { paintErr } from "../../../lib/print.js";
import { outFor } from "../../options.js";
import { type HostFileOptions, type HostFiles, ownName } from "./files.js";
import { clientConfig, hostPaths, launchOf, schemaUrl, withTilde } from "./paths.js";
import { checkHostPolicy, invalidPolicy } from "./read.js";
import { policySummary } from "./show.js";
import { writePrivately } from "./swap.js";

export interface InitOptions extends HostFileOptions {
  read?: string[];
  write?: string[];
  yes?: boolean;
  force?: boolean;
}

interface Directories {
  readonly read: readonly string[];
  readonly write: readonly string[];
}

/** Curated commands that only look; what is not on this machine is left out. */
const WANTED: readonly ProfileName[] = ["ls", "find", "grep", "rg", "git"];

export async function initHost(command: Command, files: HostFiles, options: InitOptions): Promise<void> {
  const out = outFor(command);
  if (existsSync(files.config) && options.force !== true) throw alreadyThere(files.config);
  const directories = await ask(files, options, out.json);
  const text = firstPolicy({ ...directories, commands: presentCommands(files), schema: schemaUrl() });
  const checked = checkHostPolicy(text, files);
  if (!checked.ok) throw refused(command, files, directories, checked.problems);
  write(files.config, text, options.force === true);
  const launch = launchOf(files.config, options.state === undefined ? [] : ["--state", files.state]);
  const snippet = clientConfig(launch);
  if (!out.json) out.note(written(checked.policy, directories));
  out.data({ config: files.config, hash: checked.policy.hash, client: snippet }, () =>
    JSON.stringify(snippet, null, 2),
  );
  if (!out.json) out.note(next(files));
}

/** The policy of a new installation: no directory is open yet. Returns false, and writes nothing, where there is a file. */
export function createDefaultPolicy(files: HostFiles): boolean {
  if (existsSync(files.config)) return false;
  const text = firstPolicy({ read: [], write: [], commands: presentCommands(files), schema: schemaUrl() });
  try {
    writePrivately(files.config, text, { replace: false });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

function alreadyThere(config: string): CliError {
  return new CliError(
    `there is a policy at ${config} already`,
    EXIT.error,
    `\`${ownName()} policy edit\` changes it; --force replaces it; --config <file> writes another`,
  );
}

function write(config: string, text: string, force: boolean): void {
  try {
    writePrivately(config, text, { replace: force });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw alreadyThere(config);
    throw new CliError(
      `cannot write ${config}: ${(error as Error).message}`,
      EXIT.error,
      "--config <file> writes another",
    );
  }
}

async function ask(files: HostFiles, options: InitOptions, json: boolean): Promise<Directories> {
  if (options.read !== undefined || options.yes === true || options.write !== undefined) {
    const read = options.read ?? (options.yes === true ? ["."] : []);
    return { read: eachOnce(read), write: eachOnce(options.write ?? []) };
  }
  if (json || process.stdin.isTTY !== true || process.stdout.isTTY !== true) {
    throw new CliError(
      "no terminal to ask which directories the agent may use",
      EXIT.usage,
      `say so: ${ownName()} init host --read <directory> [--write <directory>]`,
    );
  }
  const read = await question("Which directory may the agent read?", withTilde(process.cwd()), (text) =>
    problemWith(files, { read: [text], write: [] }),
  );
  const write = await question("Which directory may it write to? (leave it empty for none)", "", (text) =>
    problemWith(files, { read: [], write: text === "" ? [] : [text] }),
  );
  return { read: [spelled(read)], write: write === "" ? [] : [spelled(write)] };
}

async function question(
  message: string,
  initialValue: string,
  check: (text: string) => string | undefined,
): Promise<string> {
  const answer = await prompts.text({
    message,
    initialValue,
    validate: (text) => check((text ?? "").trim()),
  });
  if (prompts.isCancel(answer)) throw new CliError("nothing was written");
  return (answer ?? "").trim();
}

/** The problem with an answer, shown at its question. */
function problemWith(files: HostFiles, directories: Directories): string | undefined {
  if (directories.read.includes("")) return "name a directory";
  const text = firstPolicy({
    read: directories.read.map(spelled),
    write: directories.write.map(spelled),
    commands: [],
  });
  const checked = checkHostPolicy(text, files);
  const first = checked.ok ? undefined : checked.problems[0];
  return first && `${first.message}; ${first.remedy}`;
}

function eachOnce(directories: readonly string[]): string[] {
  return [...new Set(directories.map(spelled))];
}

function spelled(directory: string): string {
  const expanded = directory === "~" || directory.startsWith("~/") ? homedir() + directory.slice(1) : directory;
  return withTilde(resolve(expanded));
}

function presentCommands(files: HostFiles): ProfileName[] {
  const holds = (name: ProfileName): boolean =>
    checkHostPolicy(firstPolicy({ read: [], write: [], commands: [name] }), files).ok;
  return WANTED.filter(holds);
}

/** The file does not exist, so its lines say nothing; the directory does. */
function refused(
  command: Command,
  files: HostFiles,
  directories: Directories,
  problems: readonly HostPolicyProblem[],
): CliError {
  const { help } = invalidPolicy(command, files.config, problems);
  const lines = problems.map((problem) => {
    const index = Number(/\[(\d+)\]/.exec(problem.path)?.[1] ?? Number.NaN);
    const directory = problem.path.startsWith("allowedRoots") ? directories.read[index] : directories.write[index];
    return directory === undefined ? undefined : `${directory}: ${problem.message}; ${problem.remedy}`;
  });
  return new CliError(
    "this would be no safe policy, so nothing was written",
    EXIT.invalidPolicy,
    lines.some((line) => line === undefined) ? help : lines.join("\n"),
  );
}

function written(policy: Policy, { read, write }: Directories): string {
  const readBack = write.filter(
    (directory) => !read.some((root) => directory === root || directory.startsWith(`${root}/`)),
  );
  const hints = readBack.map((directory) =>
    paintErr.yellow(
      `  What is written to ${directory} cannot be read back; \`${ownName()} policy add-root\` changes that.`,
    ),
  );
  return [
    `${paintErr.green("✓")} wrote ${paintErr.bold(policy.file)}`,
    policySummary(policy),
    ...hints,
    "",
    "Put this into your client's configuration, then restart the client:",
    paintErr.dim("  Claude Desktop  claude_desktop_config.json (Settings, Developer, Edit Config)"),
    paintErr.dim("  Cursor          ~/.cursor/mcp.json"),
    paintErr.dim('  VS Code         .vscode/mcp.json, under "servers" instead of "mcpServers"'),
    "",
  ].join("\n");
}

function next(files: HostFiles): string {
  const named = files.config === hostPaths().config ? "" : ` --config ${files.config}`;
  const name = ownName();
  return [
    "",
    "Next:",
    `  ${name} doctor host${named}`,
    paintErr.dim("    checks this machine, starts the host and makes a real call"),
    `  ${name} policy explain fs.read <file>${named}`,
    paintErr.dim("    says what would be allowed, and by which line"),
    `  ${name} policy edit${named}`,
  ].join("\n");
}

interface TemplateAnswers {
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Curated commands that are on this machine. */
  readonly commands: readonly ProfileName[];
  /** Where editors find every field described. */
  readonly schema?: string | undefined;
}

const ABOUT: Readonly<Partial<Record<ProfileName, string>>> = {
  ls: "lists directories",
  find: "finds files by name, age and size; it cannot run or delete anything",
  grep: "searches in files",
  rg: "searches in files, quickly",
  git: "looks at history and changes",
};

function firstPolicy({ read, write, commands, schema }: TemplateAnswers): string {
  return `# What an agent may do through \`portcullis host\`. Whatever is not listed here cannot be read, written or run.
#
#   portcullis policy validate                          is this file right?
#   portcullis policy explain fs.read '{"path":"…"}'    would this be allowed, and by which line?
#   portcullis doctor host                              what this machine gives to hold it
${schema === undefined ? "" : `# yaml-language-server: $schema=${schema}\n`}version: 1

# Directories that may be read, with everything below them. Links that lead out of them are refused.
${list("allowedRoots", read.map(quoted))}

# Directories that may be written to. A file is replaced only when the call says overwrite. Commands can write there too, if the
# rule says recursive and createIfMissing. What lies inside a repository's own .git stays closed.
${writeRules(write)}

# Files on network and FUSE file systems are refused; files with several names (hard links) too.
denyNetworkFS: true
hardLinks: deny

# The catalog: nothing else can be run, there is no shell, and commands see only the directories above.
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

function writeRules(directories: readonly string[]): string {
  return list(
    "writeRules",
    directories.map(
      (directory) =>
        `path: ${quoted(directory)}\n    recursive: true\n    createIfMissing: true\n    maxFileBytes: 10_000_000`,
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
