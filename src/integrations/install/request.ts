// What the two commands share: their options, and how those become a home and a source.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, InvalidArgumentError, Option } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { CHANNELS, type ReleaseChannel, defaultRoot, type Home, homeAt, readInstalled } from "./home.js";
import { parsePublicKey, type ReleaseKey } from "./minisign.js";
import type { Source } from "./operations.js";
import { checkReleaseOrigin, originOf, packageRootOf, releaseSource } from "./origin.js";

export interface InstallOptions {
  dest?: string;
  channel?: ReleaseChannel;
  from?: string;
  key?: string;
  allowDowngrade?: boolean;
  healthTimeout: number;
}

const MAX_HEALTH_MS = 600_000;
const packageRoot = packageRootOf(fileURLToPath(new URL("../../cli/main.js", import.meta.url)));

export function addInstallOptions(command: Command): Command {
  return command
    .option("--dest <folder>", "the folder of the installation (otherwise the platform's own)")
    .addOption(new Option("--channel <name>", "which releases to take").choices(CHANNELS))
    .addOption(new Option("--from <url>", "the release server").env("PORTCULLIS_RELEASES"))
    .option("--key <file>", "trust this minisign public key instead of the one that is built in")
    .option("--health-timeout <ms>", "how long a new version may take to answer", milliseconds, 30_000)
    .option("--allow-downgrade", "take a release that is older than one that was installed");
}

function milliseconds(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0 && value <= MAX_HEALTH_MS) return value;
  throw new InvalidArgumentError(`it is 1 to ${MAX_HEALTH_MS} milliseconds.`);
}

/** The folder that was named, the one this process runs from, or the platform's own. */
export function homeFor(verb: "install" | "update", { dest }: InstallOptions): Home {
  if (dest !== undefined) return homeAt(resolve(dest));
  const own = dirname(dirname(packageRoot));
  if (dirname(packageRoot) === join(own, "versions") && existsSync(join(own, "installed.json"))) return homeAt(own);
  checkReleaseOrigin(verb, originOf({ packageRoot, env: process.env, exists: existsSync }));
  return homeAt(defaultRoot(process.platform, process.env));
}

export function sourceFor(home: Home, options: InstallOptions): Source {
  const builtIn = releaseSource(packageRoot);
  const url = options.from ?? builtIn.url;
  if (url === undefined) {
    throw new CliError(
      "this build names no release server",
      EXIT.usage,
      "say where releases are with --from URL or PORTCULLIS_RELEASES",
    );
  }
  return {
    url,
    key: keyFor(options.key, builtIn.key),
    channel: options.channel ?? readInstalled(home).channel,
    allowDowngrade: options.allowDowngrade === true,
    healthTimeoutMs: options.healthTimeout,
  };
}

/** Only a flag may change whom we trust: an environment is inherited too easily. */
function keyFor(file: string | undefined, builtIn: string | undefined): ReleaseKey {
  if (file !== undefined) {
    try {
      return parsePublicKey(readFileSync(file, "utf8"));
    } catch (error) {
      throw new CliError(`--key ${file}: ${(error as Error).message}`, EXIT.usage);
    }
  }
  if (builtIn !== undefined) return parsePublicKey(builtIn);
  throw new CliError(
    "this build carries no release key, so no signature can be checked and nothing is taken",
    EXIT.usage,
    "name the publisher's minisign public key with --key FILE",
  );
}
