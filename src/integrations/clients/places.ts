// Where each client keeps its configuration: for the user, and for the project in the current directory.

import { existsSync, readdirSync } from "node:fs";
import { posix, win32 } from "node:path";

/** Clients whose configuration `connect` edits. */
export const CONNECTABLE = [
  "claude-desktop",
  "claude-code",
  "vscode",
  "cursor",
  "codex",
  "windsurf",
  "zed",
  "gemini",
] as const;
/** Clients whose servers `import` reads by name. */
export const CLIENTS = [...CONNECTABLE, "continue"] as const;
export type ClientName = (typeof CLIENTS)[number];

export interface ClientPlace {
  readonly client: ClientName;
  readonly level: "user" | "project";
  readonly file: string;
}

export interface ClientEnvironment {
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** The project's directory. */
  readonly cwd: string;
}

export function isClient(name: string): name is ClientName {
  return (CLIENTS as readonly string[]).includes(name);
}

export function isConnectable(name: string): name is (typeof CONNECTABLE)[number] {
  return (CONNECTABLE as readonly string[]).includes(name);
}

/** Those of the user first. None of them need be there. */
export function placesOf(client: ClientName, { platform, env, home, cwd }: ClientEnvironment): ClientPlace[] {
  const { join } = platform === "win32" ? win32 : posix;
  const user = (file: string): ClientPlace => ({ client, level: "user", file });
  const project = (...parts: string[]): ClientPlace => ({ client, level: "project", file: join(cwd, ...parts) });
  switch (client) {
    case "claude-desktop":
      return [user(join(settingsDirectory(platform, env, home), "Claude", "claude_desktop_config.json"))];
    case "claude-code":
      return [user(join(env.CLAUDE_CONFIG_DIR ?? home, ".claude.json")), project(".mcp.json")];
    case "vscode":
      return [
        user(join(settingsDirectory(platform, env, home), "Code", "User", "mcp.json")),
        project(".vscode", "mcp.json"),
      ];
    case "cursor":
      return [user(join(home, ".cursor", "mcp.json")), project(".cursor", "mcp.json")];
    case "codex":
      return [user(join(env.CODEX_HOME ?? join(home, ".codex"), "config.toml")), project(".codex", "config.toml")];
    case "windsurf":
      return [user(join(home, ".codeium", "windsurf", "mcp_config.json"))];
    case "zed":
      return [user(join(zedDirectory(platform, env, home), "settings.json")), project(".zed", "settings.json")];
    case "gemini":
      return [user(join(home, ".gemini", "settings.json")), project(".gemini", "settings.json")];
    case "continue":
      // `blocksOf` adds the files of a project, which has a directory of them.
      return [user(join(home, ".continue", "config.yaml"))];
  }
}

const MAX_BLOCKS = 256;

/** Continue: each file in `.continue/mcpServers` of the user or of the project has servers. */
export function blocksOf(around: ClientEnvironment): ClientPlace[] {
  const { join } = around.platform === "win32" ? win32 : posix;
  const directories = [
    ["user", join(around.home, ".continue", "mcpServers")],
    ["project", join(around.cwd, ".continue", "mcpServers")],
  ] as const;
  return directories.flatMap(([level, directory]) => {
    const names = existsSync(directory) ? readdirSync(directory) : [];
    return names
      .filter((name) => /\.(ya?ml|json)$/.test(name))
      .sort()
      .slice(0, MAX_BLOCKS)
      .map((name): ClientPlace => ({ client: "continue", level, file: join(directory, name) }));
  });
}

/** Zed does not follow macOS. */
function zedDirectory(platform: NodeJS.Platform, env: ClientEnvironment["env"], home: string): string {
  if (platform === "win32") return win32.join(settingsDirectory(platform, env, home), "Zed");
  const config = env.XDG_CONFIG_HOME?.startsWith("/") ? env.XDG_CONFIG_HOME : posix.join(home, ".config");
  return posix.join(platform === "linux" ? config : posix.join(home, ".config"), "zed");
}

function settingsDirectory(platform: NodeJS.Platform, env: ClientEnvironment["env"], home: string): string {
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
