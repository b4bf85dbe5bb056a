// What commands share: how options are read.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { isJsonObject, type JsonObject, parseStrict } from "../mcp/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { findDataDirectory } from "./find-data-directory.js";
import { hostPaths } from "./host/config/paths.js";
import { createOut, type Out } from "../lib/print.js";

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

export function outFor(command: Command): Out {
  return createOut(command.optsWithGlobals<{ json?: boolean }>().json === true);
}

export function portNumber(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new InvalidArgumentError("a port is 0 to 65535.");
  return port;
}

export function seconds(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0 && value <= 3_600) return value;
  throw new InvalidArgumentError("write a number of seconds from 0 to 3600");
}

export function jsonArguments(text: string | undefined): JsonObject {
  if (text === undefined) return {};
  try {
    const value = parseStrict(text === "-" ? readFileSync(0, "utf8") : text);
    if (isJsonObject(value)) return value;
  } catch (error) {
    throw new CliError(
      `the arguments are no JSON: ${(error as Error).message}`,
      EXIT.usage,
      `write them like '{"a":1}'`,
    );
  }
  throw new CliError("the arguments must be a JSON object", EXIT.usage, `write them like '{"a":1}'`);
}
