// Which policy and which record a command speaks of. Light on purpose: it is loaded with every command.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import { CliError, EXIT } from "../../../lib/exit.js";
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
    .option("--config <file>", `policy of the host (default: ${hostPaths().config})`)
    .option("--state <directory>", `state directory of the host (default: ${hostPaths().state})`);
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

const noteIn = (state: string): string => join(state, "served.json");

export function noteServedPolicy({ config, state }: HostFiles): void {
  const text = `${JSON.stringify({ config })}\n`;
  const note = noteIn(state);
  if (existsSync(note) && readFileSync(note, "utf8") === text) return;
  writeFileSync(note, text, { mode: 0o600 });
}

/** The files of the host that keeps its state here; the usual policy where none was served yet. */
export function servedFiles(state: string): HostFiles {
  try {
    const { config } = JSON.parse(readFileSync(noteIn(state), "utf8")) as { config?: unknown };
    if (typeof config === "string") return { config: resolve(config), state: resolve(state) };
  } catch {
    // No host has served from here yet.
  }
  return hostFiles({ state });
}
