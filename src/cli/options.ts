// What commands share: how options are read.

import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { isJsonObject, type JsonObject, parseStrict } from "../protocol/index.js";
import { CliError, EXIT } from "./exit.js";
import { createOut, type Out } from "./print.js";

export interface Shared {
  json: boolean;
  dir: string;
}

export function shared(command: Command): Shared {
  const { json = false, dir } = command.optsWithGlobals<{ json?: boolean; dir: string }>();
  return { json, dir };
}

export function outFor(command: Command): Out {
  return createOut(shared(command).json);
}

export function portNumber(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new InvalidArgumentError("a port is 0 to 65535.");
  return port;
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
