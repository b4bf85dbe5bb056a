// A gateway as its user starts it: the built command in a process of its own, on ports of its own.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join } from "node:path";

export const root = join(import.meta.dirname, "..", "..");
const main = join(root, "dist", "cli", "main.js");

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs one command to its end. */
export function portcullis(
  args: readonly string[],
  options: { cwd?: string; input?: string; node?: string } = {},
): Ran {
  const { cwd, input, node = process.execPath } = options;
  const ran = spawnSync(node, [main, ...args], {
    cwd,
    input: input ?? "",
    encoding: "utf8",
    timeout: 170_000,
    env: { ...process.env, NO_COLOR: "1" },
  });
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
}

export interface Serving {
  url: string;
  urls: string[];
  admin: string;
  dir: string;
  child: ChildProcess;
  stderr: () => string;
  stop: () => Promise<number | null>;
}

export async function serve(
  args: readonly string[] = [],
  options: { dir?: string; node?: string } = {},
): Promise<Serving> {
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "portcullis-serve-"));
  const command = ["--json", "--dir", dir, "serve", "--port", "0", "--admin-port", "0", ...args];
  const child = spawn(options.node ?? process.execPath, [main, ...command], { stdio: ["ignore", "pipe", "pipe"] });
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString("utf8");
  });
  const exited = new Promise<number | null>((resolve) => child.on("exit", (code) => resolve(code)));
  const facts = await new Promise<{ urls: string[]; admin: string }>((resolve, reject) => {
    let stdout = "";
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk.toString("utf8");
      if (stdout.trimEnd().endsWith("}")) resolve(JSON.parse(stdout) as { urls: string[]; admin: string });
    });
    void exited.then((code) => reject(new Error(`serve ended with ${code}: ${stderr}`)));
  });
  const stop = async (): Promise<number | null> => {
    child.kill("SIGTERM");
    const code = await exited;
    if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
    return code;
  };
  return { url: facts.urls[0] as string, urls: facts.urls, admin: facts.admin, dir, child, stderr: () => stderr, stop };
}

/** Processes whose parent is this one. */
export function childrenOf(pid: number): number[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      const fields = /^\d+$/.test(name) ? readFileSync(`/proc/${name}/stat`, "utf8").split(") ")[1] : undefined;
      return Number(fields?.split(" ")[1]) === pid ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

/** On a machine with more runnable processes than cores every step takes longer; the figures are printed all the same. */
const LOADED_FACTOR = 8;

/** 1 on a machine that has a core for every process that wants one. */
export function slack(): number {
  const [load = 0] = loadavg();
  return load > availableParallelism() * 2 ? LOADED_FACTOR : 1;
}
