// The conformance suite against what `createServer` builds: every scored server scenario of both eras must pass.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Server } from "../../src/server.js";
import { fixtureServer } from "./fixture.js";
import { suite, summary, TIMEOUT_MS, unavailable } from "./suite.js";

/** How many scenarios a revision scores; the rest is reported and does not count. */
const SCORED: Readonly<Record<string, number>> = { "2025-11-25": 30, "2026-07-28": 37 };
/** Extensions and scenarios the suite itself calls pending; run by the suite, never scored. */
const NOT_SCORED = /^(tasks-|json-schema-2020-12|server-sse-polling|server-session-lifecycle|http-(custom-)?header)/;

describe("the conformance suite's server scenarios", () => {
  const results = mkdtempSync(join(tmpdir(), "portcullis-conformance-"));
  let server: Server;
  let url: string;

  beforeAll(async () => {
    server = fixtureServer();
    url = (await server.listen({ transport: "http", port: 0 })).url;
  });
  afterAll(async () => {
    await server.close();
    rmSync(results, { recursive: true, force: true });
  });

  it.for(Object.keys(SCORED))(
    "all server scenarios of the conformance suite that are scored for %s pass [U5]",
    { timeout: TIMEOUT_MS },
    async (revision, { skip }) => {
      const missing = await unavailable("0.2.0-alpha.12");
      if (missing !== undefined) {
        console.log(missing);
        return skip(missing);
      }
      const { output } = await suite("0.2.0-alpha.12", `server --url ${url} --requirements ${revision} -o ${results}`);
      const all = summary(output);
      const scored = [...all].filter(([name]) => !NOT_SCORED.test(name));
      const passed = scored.filter(([, scenario]) => scenario.ok);
      const checks = passed.reduce((sum, [, scenario]) => sum + scenario.passed, 0);
      console.log(`${revision}: ${passed.length} of ${scored.length} scored scenarios, ${checks} checks passed`);
      expect(scored.filter(([, scenario]) => !scenario.ok).map(([name]) => name)).toEqual([]);
      expect(scored).toHaveLength(SCORED[revision] as number);
    },
  );

  it("all server scenarios of the conformance suite 0.1.16 pass", { timeout: TIMEOUT_MS }, async ({ skip }) => {
    const missing = await unavailable("0.1.16");
    if (missing !== undefined) {
      console.log(missing);
      return skip(missing);
    }
    const { output } = await suite("0.1.16", `server --url ${url} --suite all -o ${results}`);
    const all = [...summary(output)].filter(([name]) => !NOT_SCORED.test(name));
    const failed = all.filter(([, scenario]) => !scenario.ok);
    console.log(`0.1.16 --suite all: ${all.length - failed.length} of ${all.length} scenarios passed`);
    expect(failed).toEqual([]);
    expect(all.length).toBeGreaterThan(20);
  });
});
