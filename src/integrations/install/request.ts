// What the two commands share: their options, and how those become a home and a source.

import { existsSync, lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, InvalidArgumentError, Option } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { CHANNELS, defaultRoot, type Home, homeAt, type ReleaseChannel, readInstalled } from "./home.js";
import type { Source } from "./operations.js";
import { parsePublicKey, type ReleaseKey } from "./release.js";

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
    .option("--dest <directory>", "directory of the installation (default: the platform's own)")
    .addOption(new Option("--channel <name>", "channel of releases").choices(CHANNELS))
    .addOption(new Option("--from <url>", "URL of the release server").env("PORTCULLIS_RELEASES"))
    .option("--key <file>", "minisign public key to trust instead of the built-in one")
    .option("--health-timeout <ms>", "how long a new version may take to respond", milliseconds, 30_000)
    .option("--allow-downgrade", "install a release that is older than one that was installed before");
}

function milliseconds(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0 && value <= MAX_HEALTH_MS) return value;
  throw new InvalidArgumentError(`it is 1 to ${MAX_HEALTH_MS} milliseconds.`);
}

/** The directory that was named, the one this process runs from, or the platform's own. */
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

export type Origin = "npx" | "npm-global" | "npm-local" | "container" | "own";

const ADVICE: Readonly<Record<Exclude<Origin, "own">, { why: string; install: string; update: string }>> = {
  npx: {
    why: "this was started by npx, which keeps packages by itself",
    install: "npm install --global portcullis",
    update: "npx portcullis@latest",
  },
  "npm-global": {
    why: "this is a global npm package, and npm replaces those",
    install: "npm install --global portcullis@latest",
    update: "npm install --global portcullis@latest",
  },
  "npm-local": {
    why: "this is a dependency of a project, whose lock file names the version",
    install: "npm install portcullis@latest",
    update: "npm install portcullis@latest",
  },
  container: {
    why: "this runs in a container, and what is installed in it goes with it",
    install: "docker pull, or build the image with the version you want",
    update: "docker pull, then start the container again from the new image",
  },
};

interface InstallContext {
  /** The directory of the package that is running. */
  readonly packageRoot: string;
  readonly env: NodeJS.ProcessEnv;
  readonly exists: (path: string) => boolean;
}

export function originOf({ packageRoot, env, exists }: InstallContext): Origin {
  const path = packageRoot.replaceAll("\\", "/");
  if (/\/_npx\//.test(path)) return "npx";
  const inside = /^(.*)\/node_modules\/portcullis$/.exec(path);
  if (inside) return exists(join(inside[1] as string, "package.json")) ? "npm-local" : "npm-global";
  const container = exists("/.dockerenv") || exists("/run/.containerenv") || env.container !== undefined;
  return container || env.KUBERNETES_SERVICE_HOST !== undefined ? "container" : "own";
}

/** Says the right command instead, unless a directory was named: then it was meant. */
export function checkReleaseOrigin(verb: "install" | "update", origin: Origin): void {
  if (origin === "own") return;
  const advice = ADVICE[origin];
  throw new CliError(
    `${advice.why}; nothing was changed`,
    1,
    `run: ${advice[verb]}\n(or name a directory with --dest, to keep a signed release of its own there)`,
  );
}

function packageRootOf(entry: string): string {
  return dirname(dirname(dirname(entry)));
}

/** Where releases come from and who signs them: part of the package, put there when a release is made. */
function releaseSource(packageRoot: string): { url?: string; key?: string } {
  const path = join(packageRoot, "release-source.json");
  if (!existsSync(path)) return {};
  const { url, key } = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  return {
    ...(typeof url === "string" ? { url } : {}),
    ...(typeof key === "string" ? { key } : {}),
  };
}

/** `link`: whether a link may be made, which is so when the user named no directory. */
export function reachable(home: Home, link: boolean): boolean {
  const path = (process.env.PATH ?? "").split(delimiter);
  if (path.includes(dirname(home.shim))) return true;
  const userBin = join(homedir(), ".local", "bin");
  if (!link || process.platform === "win32" || !path.includes(userBin)) return false;
  const name = join(userBin, "portcullis");
  const there = lstatSync(name, { throwIfNoEntry: false });
  if (there !== undefined) return there.isSymbolicLink() && readlinkSync(name) === home.shim;
  mkdirSync(userBin, { recursive: true, mode: 0o755 });
  symlinkSync(home.shim, name);
  return true;
}
