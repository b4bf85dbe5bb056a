// A manifest in the forms people have it in: a file, the address of a server, or the command that starts one.

import { existsSync, readFileSync } from "node:fs";
import { connect } from "../../mcp/client/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { manifestIn } from "./load.js";

const ADDRESS = /^(?:https?|wss?|tcp):\/\//;

/** The answer of `tools/list`. */
export async function manifestOf([first, ...rest]: readonly string[]): Promise<unknown> {
  if (first === undefined) throw new CliError("name a manifest file, a URL or a command", EXIT.usage);
  if (rest.length === 0 && existsSync(first) && !ADDRESS.test(first)) return readManifest(first);
  if (rest.length === 0 && first.endsWith(".json")) throw new CliError(`there is no file ${first}`);
  return listed(ADDRESS.test(first) ? first : { command: first, args: rest }, [first, ...rest].join(" "));
}

function readManifest(file: string): unknown {
  try {
    return manifestIn(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    throw new CliError(`cannot read the manifest ${file}: ${(error as Error).message}`);
  }
}

async function listed(target: string | { command: string; args: string[] }, name: string): Promise<unknown> {
  try {
    const client = await connect(target);
    try {
      return { tools: await client.listTools() };
    } finally {
      await client.close();
    }
  } catch (error) {
    throw new CliError(`cannot list the tools of ${name}: ${(error as Error).message}`);
  }
}
