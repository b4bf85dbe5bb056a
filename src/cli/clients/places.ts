// Where each client keeps its configuration: for the user, and for the project in the current folder.

import { posix, win32 } from "node:path";

export const CLIENTS = ["claude-desktop", "claude-code", "vscode", "cursor", "codex"] as const;
export type ClientName = (typeof CLIENTS)[number];

export interface Place {
  readonly client: ClientName;
  readonly level: "user" | "project";
  readonly file: string;
}

export interface Surroundings {
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** The project's folder. */
  readonly cwd: string;
}

export function isClient(name: string): name is ClientName {
  return (CLIENTS as readonly string[]).includes(name);
}

/** Those of the user first. None of them need be there. */
export function placesOf(client: ClientName, { platform, env, home, cwd }: Surroundings): Place[] {
  const { join } = platform === "win32" ? win32 : posix;
  const user = (file: string): Place => ({ client, level: "user", file });
  const project = (...parts: string[]): Place => ({ client, level: "project", file: join(cwd, ...parts) });
  switch (client) {
    case "claude-desktop":
      return [user(join(settingsFolder(platform, env, home), "Claude", "claude_desktop_config.json"))];
    case "claude-code":
      return [user(join(env.CLAUDE_CONFIG_DIR ?? home, ".claude.json")), project(".mcp.json")];
    case "vscode":
      return [
        user(join(settingsFolder(platform, env, home), "Code", "User", "mcp.json")),
        project(".vscode", "mcp.json"),
      ];
    case "cursor":
      return [user(join(home, ".cursor", "mcp.json")), project(".cursor", "mcp.json")];
    case "codex":
      return [user(join(env.CODEX_HOME ?? join(home, ".codex"), "config.toml")), project(".codex", "config.toml")];
  }
}

function settingsFolder(platform: NodeJS.Platform, env: Surroundings["env"], home: string): string {
  switch (platform) {
    case "win32":
      return env.APPDATA ?? win32.join(home, "AppData", "Roaming");
    case "darwin":
      return posix.join(home, "Library", "Application Support");
    default:
      // The XDG rules: a value that is not absolute does not count.
      return env.XDG_CONFIG_HOME?.startsWith("/") ? env.XDG_CONFIG_HOME : posix.join(home, ".config");
  }
}
