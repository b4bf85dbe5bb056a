// Which policy and which record a command speaks of. Light on purpose: it is loaded with every command.

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { CliError, EXIT } from "../../../lib/exit.js";
import type { Command } from "commander";
import { hostPaths } from "./paths.js";

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
    .option("--state <folder>", `where the host keeps its ledger (default: ${hostPaths().state})`);
}

export function hostFiles(options: HostFileOptions): HostFiles {
  const usual = hostPaths();
  return { config: resolve(options.config ?? usual.config), state: resolve(options.state ?? usual.state) };
}

export function requireFile(config: string): void {
  if (existsSync(config)) return;
  throw new CliError(
    `there is no policy at ${config}`,
    EXIT.error,
    `\`${ownName()} init host\` writes one; --config <file> names another`,
  );
}

/** For options that may be given several times; a value may begin with a dash. */
export function collectOption(value: string, before: string[] = []): string[] {
  return [...before, value];
}

/** How this program was called, so that what is suggested can be typed as it stands. */
export function ownName(): string {
  return process.env.npm_command === "exec" ? "npx portcullis" : "portcullis";
}
