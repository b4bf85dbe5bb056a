// How this process came to be started, and so what brings a newer version: not everything is ours to replace.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { CliError } from "../../lib/exit.js";

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

export interface InstallContext {
  /** The folder of the package that is running. */
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

/** Says the right command instead, unless a folder was named: then it was meant. */
export function checkReleaseOrigin(verb: "install" | "update", origin: Origin): void {
  if (origin === "own") return;
  const advice = ADVICE[origin];
  throw new CliError(
    `${advice.why}; nothing was changed`,
    1,
    `run: ${advice[verb]}\n(or name a folder with --dest, to keep a signed release of its own there)`,
  );
}

export function packageRootOf(entry: string): string {
  return dirname(dirname(dirname(entry)));
}

/** Where releases come from and who signs them: part of the package, put there when a release is made. */
export function releaseSource(packageRoot: string): { url?: string; key?: string } {
  const path = join(packageRoot, "release-source.json");
  if (!existsSync(path)) return {};
  const { url, key } = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  return {
    ...(typeof url === "string" ? { url } : {}),
    ...(typeof key === "string" ? { key } : {}),
  };
}
