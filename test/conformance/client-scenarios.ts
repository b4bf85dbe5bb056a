// The client scenarios of one release of the MCP conformance suite, played against what `connect` builds.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { root, type Scenario, single, suite, summary, unavailable } from "./suite.js";

/** What the client said on stderr in the last run of a scenario. */
function lastWords(results: string, scenario: string): string {
  const folder = dirname(join(results, scenario));
  const runs = readdirSync(folder).filter((run) => run.startsWith(`${basename(scenario)}-`));
  return readFileSync(join(folder, runs.sort().at(-1) ?? "", "stderr.txt"), "utf8").slice(-2_000);
}

/** Every scored scenario about OAuth of either revision. */
export const OAUTH = [
  "metadata-default",
  "metadata-var1",
  "metadata-var2",
  "metadata-var3",
  "basic-cimd",
  "scope-from-www-authenticate",
  "scope-from-scopes-supported",
  "scope-omitted-when-undefined",
  "scope-step-up",
  "scope-retry-limit",
  "token-endpoint-auth-basic",
  "token-endpoint-auth-post",
  "token-endpoint-auth-none",
  "pre-registration",
].map((name) => `auth/${name}`);

/** The scored scenarios of 2025-11-25 that are not about OAuth. */
export const SCORED_2025 = ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"];

function newestIn(folder: string): number {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) =>
    /(?<!test)\.(ts|js)$/.test(file),
  );
  return Math.max(...files.map((file) => statSync(join(folder, file)).mtimeMs));
}

const SCENARIO_MS = 120_000;
const MAX_TRIES = 4;

/** The revision of `--requirements`, in the form that a single scenario takes. */
function revisionOf(which: string): string {
  const revision = /--(?:requirements|spec-version) (\S+)/.exec(which)?.[1];
  return revision === undefined ? "" : `--spec-version ${revision} --force`;
}

export type Play = (
  version: string,
  /** Arguments of the suite: a revision, a suite or one scenario. */
  which: string,
  skip: (reason: string) => void,
  /** Scenarios that are not run again when they fail. */
  expectedToFail?: readonly string[],
) => Promise<Map<string, Scenario>>;

/** `playScenarios` prepares a directory for the results and returns the function that runs scenarios. */
export function playScenarios(): Play {
  const results = mkdtempSync(join(tmpdir(), "portcullis-conformance-"));
  const command = `${process.execPath} ${join(import.meta.dirname, "client.mjs")}`;

  beforeAll(() => {
    const built = join(root, "dist", "mcp", "client");
    if (!existsSync(join(built, "index.js")) || newestIn(built) < newestIn(join(root, "src", "mcp", "client"))) {
      throw new Error("dist/mcp/client is missing or older than src/mcp/client; run `npm run build` first");
    }
  });
  afterAll(() => rmSync(results, { recursive: true, force: true }));

  return async (version, which, skip, expectedToFail = []) => {
    const missing = await unavailable(version);
    if (missing !== undefined) {
      console.log(missing);
      skip(missing);
    }
    const client = `client --command "${command}" --timeout ${SCENARIO_MS} -o ${results}`;
    const { output } = await suite(version, `${client} ${which}`);
    const scenarios = summary(output);
    const alone = /--scenario (\S+)/.exec(which)?.[1];
    if (alone !== undefined) scenarios.set(alone, single(output));
    // The suite starts all scenarios at once and some of its checks have a deadline of their own (a reconnect within
    // twice the `retry` time), which a loaded machine misses. A scenario that failed is run again by itself.
    for (const [name, scenario] of scenarios) {
      if (expectedToFail.includes(name)) continue;
      for (let tries = 0; tries < MAX_TRIES && !scenario.ok; tries++) {
        const again = await suite(version, `${client} --scenario ${name} ${revisionOf(which)}`);
        Object.assign(scenario, single(again.output));
      }
    }
    const passed = [...scenarios.values()].filter((scenario) => scenario.ok);
    const checks = passed.reduce((sum, scenario) => sum + scenario.passed, 0);
    for (const [name, scenario] of scenarios) if (!scenario.ok) console.log(`${name}: ${lastWords(results, name)}`);
    console.log(`${version} ${which}: ${passed.length} of ${scenarios.size} scenarios, ${checks} checks passed`);
    return scenarios;
  };
}
