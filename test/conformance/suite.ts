// The MCP conformance suite as a command. It comes from the package registry and needs a newer Node than we do,
// which comes with it.

import { spawn } from "node:child_process";
import { join } from "node:path";

export const root = join(import.meta.dirname, "..", "..");
const SUITE = "@modelcontextprotocol/conformance";
export const TIMEOUT_MS = 480_000;
const MAX_OUTPUT = 64 * 1024 * 1024;

/** The platform's own package of Node 24: unlike `node`, it needs no install script. */
function nodePackage(): string {
  const prefix = process.platform === "darwin" && process.arch === "arm64" ? "node-bin" : "node";
  return `${prefix}-${process.platform === "win32" ? "win" : process.platform}-${process.arch}@24`;
}

interface Ran {
  status: number | null;
  output: string;
}

/** Asynchronous, so that a server in this process can answer meanwhile. */
function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"], timeout: TIMEOUT_MS, env });
    let output = "";
    const take = (chunk: Buffer): void => {
      if (output.length < MAX_OUTPUT) output += chunk.toString("utf8");
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("error", (error) => resolve({ status: null, output: output + error.message }));
    child.on("close", (status) => resolve({ status, output }));
  });
}

/** The search path with the programs of one version of the suite, or npm's output when they cannot be had. */
interface Programs {
  path?: string;
  output: string;
}

const fetched = new Map<string, Promise<Programs>>();

/** npm fetches the suite and looks it up once for each version, because npm takes longer to start than a scenario. */
function programs(version: string): Promise<Programs> {
  const known = fetched.get(version) ?? fetchPrograms(version);
  fetched.set(version, known);
  return known;
}

async function fetchPrograms(version: string): Promise<Programs> {
  const packages = ["-p", nodePackage(), "-p", `${SUITE}@${version}`];
  // Without a registry the lookup fails soon.
  const env = { ...process.env, npm_config_fetch_retries: "1", npm_config_fetch_retry_mintimeout: "1000" };
  const show = `node -p '"\\nPATH=" + process.env.PATH'`;
  const { status, output } = await run("npx", ["-y", ...packages, "-c", `conformance --version && ${show}`], env);
  const path = /^PATH=(.+)$/m.exec(output)?.[1];
  return status === 0 && path !== undefined ? { path, output } : { output };
}

/** Runs one version of the suite with the arguments of a shell command. */
export async function suite(version: string, args: string): Promise<Ran> {
  const { path, output } = await programs(version);
  if (path === undefined) return { status: null, output };
  return run("sh", ["-c", `exec conformance ${args}`], { ...process.env, PATH: path });
}

export interface Scenario {
  ok: boolean;
  passed: number;
  failed: number;
}

/** What the suite's summary says of each scenario. */
export function summary(output: string): Map<string, Scenario> {
  const from = Math.max(output.lastIndexOf("=== SUITE SUMMARY ==="), output.lastIndexOf("=== SUMMARY ==="));
  const lines = output.slice(from).matchAll(/^([✓✗]) (\S+): (\d+) passed, (\d+) failed/gm);
  return new Map(
    [...lines].map((line) => [
      line[2] as string,
      { ok: line[1] === "✓", passed: Number(line[3]), failed: Number(line[4]) },
    ]),
  );
}

/** The outcome of a scenario that was run by itself. */
export function single(output: string): Scenario {
  const [, passed = "0", failed = "1"] = /^Passed: (\d+)\/\d+, (\d+) failed/m.exec(output) ?? [];
  return { ok: output.includes("OVERALL: PASSED"), passed: Number(passed), failed: Number(failed) };
}

/** Why a version of the suite cannot be had, or undefined when it can. */
export async function unavailable(version: string): Promise<string | undefined> {
  const { path, output } = await programs(version);
  if (path !== undefined) return undefined;
  const errors = output
    .split("\n")
    .filter((line) => line.startsWith("npm error"))
    .slice(0, 3);
  const why = errors.length > 0 ? errors.join("; ") : output.trim().split("\n").at(-1);
  return `skipped: ${SUITE}@${version} with ${nodePackage()} cannot be fetched from the package registry (${why})`;
}
