// What a newcomer has: a home with a client's configuration in it, servers from npm behind it, and an empty folder.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type Ran, root } from "./serving.js";

export const main = join(root, "dist", "cli", "main.js");
const require = createRequire(import.meta.url);

export const SERVERS = ["everything", "filesystem", "memory", "sequential-thinking"] as const;

/** The program of a reference server, as npm installed it. */
export function programOf(server: (typeof SERVERS)[number]): string {
  const manifest = require.resolve(`@modelcontextprotocol/server-${server}/package.json`);
  const { bin } = require(manifest) as { bin: Record<string, string> };
  return join(dirname(manifest), Object.values(bin)[0] as string);
}

export interface Newcomer {
  readonly home: string;
  /** The folder the newcomer stands in; empty at first. */
  readonly folder: string;
  /** The data directory of this user. */
  readonly data: string;
  /** What the file server may see. */
  readonly files: string;
  readonly claude: string;
  run(...args: string[]): Ran;
  /** A gateway on HTTP. */
  serve(...args: string[]): Promise<{ url: string; admin: string; stop(): Promise<void> }>;
  env(): Record<string, string>;
  close(): Promise<void>;
}

export const TOKEN = "sk-first-hour-0123456789abcdef";

/** As Claude Desktop has it on Linux, with a credential in clear and a remark. */
export function newcomer(): Newcomer {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-first-hour-")));
  const folder = join(home, "work");
  const files = join(home, "files");
  for (const each of [folder, files]) mkdirSync(each);
  writeFileSync(join(files, "plan.txt"), "water the plants\n");
  const servers = {
    everything: { command: process.execPath, args: [programOf("everything")], env: { DEMO_API_KEY: TOKEN } },
    filesystem: { command: process.execPath, args: [programOf("filesystem"), files] },
    memory: {
      command: process.execPath,
      args: [programOf("memory")],
      env: { MEMORY_FILE_PATH: "${HOME}/memory.jsonl" },
    },
    thinking: { command: process.execPath, args: [programOf("sequential-thinking")] },
  };
  const claude = join(home, ".config", "Claude", "claude_desktop_config.json");
  mkdirSync(dirname(claude), { recursive: true });
  const text = JSON.stringify({ theme: "dark", mcpServers: servers }, null, 2);
  writeFileSync(claude, text.replace("{", "{\n  // chosen with care"), { mode: 0o644 });
  const env = (): Record<string, string> => ({ PATH: process.env.PATH ?? "", HOME: home, NO_COLOR: "1" });
  const running = new Set<{ child: ChildProcess; exited: Promise<unknown> }>();
  const stop = async (each: { child: ChildProcess; exited: Promise<unknown> }): Promise<void> => {
    running.delete(each);
    each.child.kill("SIGTERM");
    await each.exited;
  };
  return {
    home,
    folder,
    data: join(home, ".local", "state", "portcullis"),
    files,
    claude,
    env,
    run: (...args) => {
      const ran = spawnSync(process.execPath, [main, ...args], {
        cwd: folder,
        input: "",
        encoding: "utf8",
        timeout: 170_000,
        env: env(),
      });
      return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
    },
    serve: async (...args) => {
      const command = [main, "--json", "serve", "--port", "0", "--admin-port", "0", ...args];
      const child = spawn(process.execPath, command, { cwd: folder, env: env(), stdio: ["ignore", "pipe", "pipe"] });
      let stdout = "";
      let stderr = "";
      child.stderr.on("data", (chunk) => {
        stderr += String(chunk);
      });
      const exited = new Promise((resolve) => child.once("exit", resolve));
      const one = { child, exited };
      running.add(one);
      const facts = await new Promise<{ urls: string[]; admin: string }>((resolve, reject) => {
        child.stdout.on("data", (chunk) => {
          stdout += String(chunk);
          if (stdout.trimEnd().endsWith("}")) resolve(JSON.parse(stdout) as { urls: string[]; admin: string });
        });
        void exited.then((code) => reject(new Error(`serve ended with ${code}: ${stderr}`)));
      });
      return { url: facts.urls[0] as string, admin: facts.admin, stop: () => stop(one) };
    },
    close: async () => {
      await Promise.all([...running].map(stop));
      rmSync(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
