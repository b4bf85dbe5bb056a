// What goes into a client's configuration so that it starts the host.

import { VERSION } from "../../version.js";
import { isFleeting, mainFile, stableProgram } from "./paths.js";

export interface Launch {
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
