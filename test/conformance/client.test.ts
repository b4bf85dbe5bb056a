// The MCP conformance suite against our client: what `connect` builds must pass every scored client scenario that is
// not about OAuth. The suite comes from the package registry and needs a newer Node than we do, which comes with it.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "..", "..");
const SUITE = "@modelcontextprotocol/conformance";
const TIMEOUT_MS = 240_000;

/** The platform's own package of Node 24: unlike `node`, it needs no install script. */
function nodePackage(): string {
  const prefix = process.platform === "darwin" && process.arch === "arm64" ? "node-bin" : "node";
  return `${prefix}-${process.platform === "win32" ? "win" : process.platform}-${process.arch}@24`;
}

interface Ran {
  status: number | null;
  output: string;
}

function suite(version: string, args: string): Ran {
  const packages = ["-p", nodePackage(), "-p", `${SUITE}@${version}`];
  const ran = spawnSync("npx", ["-y", ...packages, "-c", `conformance ${args}`], {
    cwd: root,
    encoding: "utf8",
    timeout: TIMEOUT_MS,
    maxBuffer: 64 * 1024 * 1024,
    // Without a registry we want to know soon.
    env: { ...process.env, npm_config_fetch_retries: "1", npm_config_fetch_retry_mintimeout: "1000" },
  });
  return { status: ran.status, output: `${ran.stdout ?? ""}${ran.stderr ?? ""}${ran.error?.message ?? ""}` };
}

/** What the suite's summary says of each scenario. */
function summary(output: string): Map<string, { ok: boolean; passed: number; failed: number }> {
  const lines = output
    .slice(output.lastIndexOf("=== SUITE SUMMARY ==="))
    .matchAll(/^([✓✗]) (\S+): (\d+) passed, (\d+) failed/gm);
  return new Map(
    [...lines].map((line) => [
      line[2] as string,
      { ok: line[1] === "✓", passed: Number(line[3]), failed: Number(line[4]) },
    ]),
  );
}

/** What the client said on stderr in the last run of a scenario. */
function lastWords(results: string, scenario: string): string {
  const runs = readdirSync(results).filter((folder) => folder.startsWith(`${scenario}-`));
  return readFileSync(join(results, runs.sort().at(-1) ?? "", "stderr.txt"), "utf8").slice(-2_000);
}

function newestIn(folder: string): number {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) =>
    /(?<!test)\.(ts|js)$/.test(file),
  );
  return Math.max(...files.map((file) => statSync(join(folder, file)).mtimeMs));
}

/** Why a suite cannot be had, or undefined when it can. Looked up once for each version. */
const known = new Map<string, string | undefined>();
function unavailable(version: string): string | undefined {
  if (!known.has(version)) known.set(version, lookFor(version));
  return known.get(version);
}

function lookFor(version: string): string | undefined {
  const { status, output } = suite(version, "--version");
  if (status === 0) return undefined;
  const told = output
    .split("\n")
    .filter((line) => line.startsWith("npm error"))
    .slice(0, 3);
  const why = told.length > 0 ? told.join("; ") : output.trim().split("\n").at(-1);
  return `skipped: ${SUITE}@${version} with ${nodePackage()} cannot be fetched from the package registry (${why})`;
}

describe("the conformance suite's client scenarios", () => {
  const results = mkdtempSync(join(tmpdir(), "portcullis-conformance-"));
  const command = `${process.execPath} ${join(import.meta.dirname, "client.mjs")}`;

  beforeAll(() => {
    const built = join(root, "dist", "client");
    if (!existsSync(join(built, "index.js")) || newestIn(built) < newestIn(join(root, "src", "client"))) {
      throw new Error("dist/client is missing or older than src/client; run `npm run build` first");
    }
  });
  afterAll(() => rmSync(results, { recursive: true, force: true }));

  const play = (version: string, which: string, skip: (reason: string) => void): ReturnType<typeof summary> => {
    const missing = unavailable(version);
    if (missing !== undefined) {
      console.log(missing);
      skip(missing);
    }
    const { output } = suite(version, `client --command "${command}" ${which} -o ${results}`);
    const scenarios = summary(output);
    for (const name of scenarios.keys()) if (name.startsWith("auth/")) scenarios.delete(name);
    const passed = [...scenarios.values()].filter((scenario) => scenario.ok);
    const checks = passed.reduce((sum, scenario) => sum + scenario.passed, 0);
    for (const [name, scenario] of scenarios) if (!scenario.ok) console.log(`${name}: ${lastWords(results, name)}`);
    console.log(
      `${version} ${which}: ${passed.length} of ${scenarios.size} scenarios (not auth/*), ${checks} checks passed`,
    );
    return scenarios;
  };

  it.for<[string, string[]]>([
    ["2025-11-25", ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]],
    [
      "2026-07-28",
      [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
      ],
    ],
  ])("that are scored for %s all pass", { timeout: TIMEOUT_MS }, ([revision, scored], { skip }) => {
    const scenarios = play("0.2.0-alpha.12", `--requirements ${revision}`, skip);
    expect([...scenarios.keys()]).toEqual(expect.arrayContaining(scored));
    // Nothing fails, not even what is not scored.
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });

  it("of the last stable release all pass", { timeout: TIMEOUT_MS }, ({ skip }) => {
    const scenarios = play("0.1.16", "--suite all", skip);
    expect([...scenarios.keys()]).toEqual(
      expect.arrayContaining(["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]),
    );
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });
});
