// `portcullis init host`: two questions, a commented policy, and the lines a client needs.

import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";
import * as prompts from "@clack/prompts";
import type { Command } from "commander";
import type { Policy, HostPolicyProblem, ProfileName } from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { outFor } from "../../options.js";
import { paintErr } from "../../../lib/print.js";
import { clientConfig, launchOf } from "./client-snippet.js";
import { type HostFileOptions, type HostFiles, ownName } from "./files.js";
import { hostPaths, schemaUrl, withTilde } from "./paths.js";
import { checkHostPolicy, invalidPolicy } from "./read.js";
import { policySummary } from "./show.js";
import { writePrivately } from "./swap.js";
import { firstPolicy } from "./template.js";

export interface InitOptions extends HostFileOptions {
  read?: string[];
  write?: string[];
  yes?: boolean;
  force?: boolean;
}

interface Folders {
  readonly read: readonly string[];
  readonly write: readonly string[];
}

/** Curated commands that only look; what is not on this machine is left out. */
const WANTED: readonly ProfileName[] = ["ls", "find", "grep", "rg", "git"];

export async function initHost(command: Command, files: HostFiles, options: InitOptions): Promise<void> {
  const out = outFor(command);
  if (existsSync(files.config) && options.force !== true) throw alreadyThere(files.config);
  const folders = await ask(files, options, out.json);
  const text = firstPolicy({ ...folders, commands: presentCommands(files), schema: schemaUrl() });
  const checked = checkHostPolicy(text, files);
  if (!checked.ok) throw refused(command, files, folders, checked.problems);
  write(files.config, text, options.force === true);
  const launch = launchOf(files.config, options.state === undefined ? [] : ["--state", files.state]);
  const snippet = clientConfig(launch);
  if (!out.json) out.note(written(checked.policy, folders));
  out.data({ config: files.config, hash: checked.policy.hash, client: snippet }, () =>
    JSON.stringify(snippet, null, 2),
  );
  if (!out.json) out.note(next(files));
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

async function ask(files: HostFiles, options: InitOptions, json: boolean): Promise<Folders> {
  if (options.read !== undefined || options.yes === true || options.write !== undefined) {
    const read = options.read ?? (options.yes === true ? ["."] : []);
    return { read: eachOnce(read), write: eachOnce(options.write ?? []) };
  }
  if (json || process.stdin.isTTY !== true || process.stdout.isTTY !== true) {
    throw new CliError(
      "there is nobody to ask which folders the agent may use",
      EXIT.usage,
      `say so: ${ownName()} init host --read <folder> [--write <folder>]`,
    );
  }
  const read = await question("Which folder may the agent read?", withTilde(process.cwd()), (text) =>
    problemWith(files, { read: [text], write: [] }),
  );
  const write = await question("Which folder may it write to? (leave it empty for none)", "", (text) =>
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

/** Said at the question, where it can still be answered differently. */
function problemWith(files: HostFiles, folders: Folders): string | undefined {
  if (folders.read.includes("")) return "name a folder";
  const text = firstPolicy({ read: folders.read.map(spelled), write: folders.write.map(spelled), commands: [] });
  const checked = checkHostPolicy(text, files);
  const first = checked.ok ? undefined : checked.problems[0];
  return first && `${first.message}; ${first.remedy}`;
}

function eachOnce(folders: readonly string[]): string[] {
  return [...new Set(folders.map(spelled))];
}

function spelled(folder: string): string {
  const expanded = folder === "~" || folder.startsWith("~/") ? homedir() + folder.slice(1) : folder;
  return withTilde(resolve(expanded));
}

function presentCommands(files: HostFiles): ProfileName[] {
  const holds = (name: ProfileName): boolean =>
    checkHostPolicy(firstPolicy({ read: [], write: [], commands: [name] }), files).ok;
  return WANTED.filter(holds);
}

/** The file does not exist, so its lines say nothing; the folder does. */
function refused(
  command: Command,
  files: HostFiles,
  folders: Folders,
  problems: readonly HostPolicyProblem[],
): CliError {
  const { help } = invalidPolicy(command, files.config, problems);
  const said = problems.map((problem) => {
    const index = Number(/\[(\d+)\]/.exec(problem.path)?.[1] ?? Number.NaN);
    const folder = problem.path.startsWith("allowedRoots") ? folders.read[index] : folders.write[index];
    return folder === undefined ? undefined : `${folder}: ${problem.message}; ${problem.remedy}`;
  });
  return new CliError(
    "this would be no safe policy, so nothing was written",
    EXIT.invalidPolicy,
    said.some((line) => line === undefined) ? help : said.join("\n"),
  );
}

function written(policy: Policy, { read, write }: Folders): string {
  const readBack = write.filter((folder) => !read.some((root) => folder === root || folder.startsWith(`${root}/`)));
  const hints = readBack.map((folder) =>
    paintErr.yellow(
      `  What is written to ${folder} cannot be read back; \`${ownName()} policy add-root\` changes that.`,
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
