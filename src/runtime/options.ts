// What commands share: how options are read.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { CliError, EXIT } from "../lib/exit.js";
import { createOut, type Out, shellWord } from "../lib/print.js";
import { isJsonObject, type JsonObject, parseStrict } from "../mcp/index.js";
import { findDataDirectory } from "./data-directory.js";
import { hostPaths } from "./host/config/paths.js";

export interface Shared {
  json: boolean;
  dir: string;
}

export function shared(command: Command): Shared {
  const { json = false, dir = findDataDirectory() } = command.optsWithGlobals<{ json?: boolean; dir?: string }>();
  return { json, dir };
}

/** Where the host beside the data directory keeps its state; the user's own unless --dir names a data directory. */
export function hostDirectory(command: Command): string {
  const isNamed = command.getOptionValueSourceWithGlobals("dir") === "cli";
  return isNamed ? join(resolve(shared(command).dir), "host") : hostPaths().state;
}

/** How a printed command starts, so that it works on the same data directory. */
export function portcullisAt(command: Command): string {
  const isNamed = command.getOptionValueSourceWithGlobals("dir") === "cli";
  return isNamed ? `portcullis --dir ${shellWord(shared(command).dir)}` : "portcullis";
}

export function outFor(command: Command): Out {
  return createOut(command.optsWithGlobals<{ json?: boolean }>().json === true);
}

export function jsonArguments(text: string | undefined): JsonObject {
  if (text === undefined) return {};
  try {
    const value = parseStrict(text === "-" ? readFileSync(0, "utf8") : text);
    if (isJsonObject(value)) return value;
  } catch (error) {
    throw new CliError(`invalid arguments: ${(error as Error).message}`, EXIT.usage, `write them like '{"a":1}'`);
  }
  throw new CliError("arguments must be a JSON object", EXIT.usage, `write them like '{"a":1}'`);
}

const MAX_SECRET_BYTES = 64 * 1024;

export async function agreed(question: string, yes: boolean | undefined): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY) {
    throw new CliError(
      "nothing was changed: no terminal to confirm the change",
      EXIT.usage,
      "add --yes when you are sure",
    );
  }
  // Loaded here: most commands ask nothing. On stderr, for stdout carries data.
  const { confirm, isCancel } = await import("@clack/prompts");
  const answer = await confirm({ message: question, output: process.stderr });
  if (isCancel(answer) || !answer) throw new CliError("nothing was changed");
}

/** From a pipe, or typed without being shown; never from the command line, which every process can read. */
export async function secretValue(name: string): Promise<string> {
  const value = process.stdin.isTTY ? await typed(name) : piped();
  if (value === "") throw new CliError("the secret is empty; nothing was stored", EXIT.usage);
  return value;
}

async function typed(name: string): Promise<string> {
  const { isCancel, password } = await import("@clack/prompts");
  const value = await password({ message: `the value of ${name}`, output: process.stderr });
  if (isCancel(value)) throw new CliError("nothing was stored");
  return value;
}

function piped(): string {
  const bytes = readFileSync(0);
  if (bytes.length > MAX_SECRET_BYTES) throw new CliError(`a secret has at most ${MAX_SECRET_BYTES} bytes`, EXIT.usage);
  // `echo` ends with a line; a secret does not.
  return bytes.toString("utf8").replace(/\r?\n$/, "");
}

/** Underscores as in the policy itself: 10_000_000. */
export function wholeNumber(text: string): number {
  if (!/^\d+(_\d+)*$/.test(text)) throw new InvalidArgumentError("it must be a whole number, like 10_000_000.");
  return Number(text.replaceAll("_", ""));
}

/** `fs.read` and `fs.write` take a path as it stands, so that no JSON has to be written for it. */
export function hostArguments(tool: string, text: string | undefined): JsonObject {
  const isPath = text !== undefined && tool.startsWith("fs.") && !/^\s*\{/.test(text) && text !== "-";
  if (!isPath) return jsonArguments(text);
  return { path: text, ...(tool === "fs.write" ? { data: "", overwrite: true } : {}) };
}
