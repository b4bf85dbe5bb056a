// Where the host keeps its policy and its record, and which files are the host itself.

import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, posix, resolve, sep, win32 } from "node:path";
import { fileURLToPath } from "node:url";
import { VERSION } from "../../environment.js";

interface HostPaths {
  readonly config: string;
  readonly state: string;
}

/** The directories each system has for settings and for what a program writes down. */
export function hostPaths(
  platform: NodeJS.Platform = process.platform,
  env: Readonly<Record<string, string | undefined>> = process.env,
  home: string = homedir(),
): HostPaths {
  switch (platform) {
    case "win32": {
      const roaming = env.APPDATA ?? win32.join(home, "AppData", "Roaming");
      const local = env.LOCALAPPDATA ?? win32.join(home, "AppData", "Local");
      return {
        config: win32.join(roaming, "portcullis", "policy.yaml"),
        state: win32.join(local, "portcullis", "host"),
      };
    }
    case "darwin": {
      const library = posix.join(home, "Library");
      return {
        config: posix.join(library, "Preferences", "portcullis", "policy.yaml"),
        state: posix.join(library, "Application Support", "portcullis", "host"),
      };
    }
    default: {
      // The XDG rules: a value that is not absolute does not count.
      const config = absolute(env.XDG_CONFIG_HOME) ?? posix.join(home, ".config");
      const state = absolute(env.XDG_STATE_HOME) ?? posix.join(home, ".local", "state");
      return {
        config: posix.join(config, "portcullis", "policy.yaml"),
        state: posix.join(state, "portcullis", "host"),
      };
    }
  }
}

function absolute(path: string | undefined): string | undefined {
  return path?.startsWith("/") ? path : undefined;
}

/** The command's own program. */
export function mainFile(): string {
  return fileURLToPath(new URL("../../../cli/main.js", import.meta.url));
}

/**
 * Files that run as the host: a process that could write there could rewrite the host itself.
 * Tests run the sources, whose directory is then the program.
 */
export function programPaths(): string[] {
  const code = resolve(dirname(fileURLToPath(import.meta.url)), "../../..");
  const root = dirname(code);
  const parts = root.split(sep);
  const around = parts.lastIndexOf("node_modules");
  const modules = around < 0 ? join(root, "node_modules") : parts.slice(0, around + 1).join(sep);
  const installation = installationOf(mainFile());
  const own = installation === undefined ? [] : [installation];
  return [...own, code, join(root, "package.json"), modules, process.execPath].filter((path) => existsSync(path));
}

/** Of `portcullis install`: a directory a version, and one program beside them that starts the current one. */
function installationOf(main: string): string | undefined {
  const versions = resolve(main, "../../../..");
  return basename(versions) === "versions" && existsSync(shimOf(dirname(versions))) ? dirname(versions) : undefined;
}

function shimOf(installation: string): string {
  return join(installation, "bin", "portcullis");
}

/** The program that starts the current version and stays when the version changes. */
export function stableProgram(main: string): string | undefined {
  const installation = installationOf(main);
  return installation && shimOf(installation);
}

/** policy.schema.json of this package, for editors; what npx fetched does not stay where it is. */
export function schemaUrl(): string | undefined {
  const url = new URL("../../../../policy.schema.json", import.meta.url);
  return isFleeting(fileURLToPath(url)) || !existsSync(url) ? undefined : url.href;
}

/** In npx's cache, which is emptied now and then. */
export function isFleeting(path: string): boolean {
  return path.split(sep).includes("_npx");
}

/** `~/code` instead of the whole path: shorter, and the same file serves another machine. */
export function withTilde(path: string, home: string = homedir()): string {
  return path.startsWith(`${home}/`) && home !== "/" ? `~${path.slice(home.length)}` : path;
}

interface Launch {
  readonly command: string;
  readonly args: readonly string[];
}

/**
 * How a client can start this very program. A client of the desktop has no PATH of ours, so everything is written out;
 * what npx fetched lies in a cache that is emptied now and then, so npx is asked again; an installed version makes room for
 * the next, so the program that starts the current one is named.
 */
export function launchOf(config: string, more: readonly string[] = []): Launch {
  return launchWith(["host", "--config", config, ...more]);
}

/** The same for any of our commands. */
export function launchWith(args: readonly string[]): Launch {
  const main = mainFile();
  if (isFleeting(main)) return { command: "npx", args: ["-y", `portcullis@${VERSION}`, ...args] };
  const shim = stableProgram(main);
  return shim === undefined ? { command: process.execPath, args: [main, ...args] } : { command: shim, args };
}

export interface ClientConfig {
  readonly mcpServers: Readonly<Record<string, Launch>>;
}

export function clientConfig(launch: Launch): ClientConfig {
  return { mcpServers: { "portcullis-host": launch } };
}
