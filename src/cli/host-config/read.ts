// Reading a host's policy for a command: where it is, whether it holds, and in which words that is said.

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { type LoadOptions, type LoadResult, loadPolicy, type Policy, type PolicyProblem, problemText } from "../../host/index.js";
import { CliError, EXIT } from "../exit.js";
import { outFor } from "../options.js";
import { hostPaths, programPaths } from "./paths.js";

export interface HostFileOptions {
  config?: string;
  state?: string;
}

export interface HostFiles {
  readonly config: string;
  readonly state: string;
}

/** Every command that speaks of a host's policy has these two. */
export function withHostFiles(command: Command): Command {
  return command
    .option("--config <file>", `the host's policy (default: ${hostPaths().config})`)
    .option("--state <folder>", "where the host keeps its ledger (default: the system's place for that)");
}

export function hostFiles(options: HostFileOptions): HostFiles {
  const usual = hostPaths();
  return { config: resolve(options.config ?? usual.config), state: resolve(options.state ?? usual.state) };
}

/** What nothing in a policy may reach, whoever reads it. */
export function loadOptions({ config, state }: HostFiles): LoadOptions {
  return { protectedPaths: [state, config], programPaths: programPaths() };
}

export function loadHostPolicy(files: HostFiles): LoadResult {
  return loadPolicy(files.config, loadOptions(files));
}

/** The policy, or the end of the command with every problem it has. */
export function requireHostPolicy(command: Command, files: HostFiles): Policy {
  requireFile(files.config);
  const loaded = loadHostPolicy(files);
  if (loaded.ok) return loaded.policy;
  throw invalidPolicy(command, files.config, loaded.problems);
}

export function requireFile(config: string): void {
  if (existsSync(config)) return;
  throw new CliError(
    `there is no policy at ${config}`,
    EXIT.error,
    "`portcullis init host` writes one; --config <file> names another",
  );
}

export function invalidPolicy(command: Command, file: string, problems: readonly PolicyProblem[]): CliError {
  const out = outFor(command);
  if (out.json) out.data({ ok: false, file, problems }, () => "");
  return problemsOf(file, problems);
}

export function problemsOf(file: string, problems: readonly PolicyProblem[]): CliError {
  const count = problems.length === 1 ? "a problem" : `${problems.length} problems`;
  return new CliError(`${file} has ${count}`, EXIT.invalidPolicy, problems.map(problemText).join("\n"));
}
