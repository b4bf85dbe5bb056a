// The MCP conformance suite against our client: what `connect` builds must pass every scored client scenario, those
// about OAuth included. The suite comes from the package registry and needs a newer Node than we do, which comes with it.

import { describe, expect, it } from "vitest";
import { OAUTH, playScenarios, SCORED_2025 } from "./client-scenarios.js";
import { TIMEOUT_MS } from "./suite.js";

/** Those that 2026-07-28 has on top. */
const OAUTH_2026 = [
  "resource-mismatch",
  "offline-access-scope",
  "offline-access-not-supported",
  "authorization-server-migration",
  "iss-supported",
  "iss-not-advertised",
  "iss-supported-missing",
  "iss-wrong-issuer",
  "iss-unexpected",
  "iss-normalized",
  "metadata-issuer-mismatch",
].map((name) => `auth/${name}`);

describe("the conformance suite's client scenarios", () => {
  const play = playScenarios();

  it("all client scenarios of the conformance suite that are scored for 2026-07-28 pass", {
    timeout: TIMEOUT_MS,
  }, async ({ skip }) => {
    const scenarios = await play("0.2.0-alpha.12", "--requirements 2026-07-28", skip);
    expect([...scenarios.keys()]).toEqual(
      expect.arrayContaining([
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        ...OAUTH,
        ...OAUTH_2026,
      ]),
    );
    // Nothing fails, not even what is not scored.
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });

  // client.long.test.ts runs all of this revision; these are the scenarios that are not about OAuth.
  it.for(SCORED_2025)(
    "the client scenario %s of the conformance suite passes in 2025-11-25",
    {
      timeout: TIMEOUT_MS,
    },
    async (scenario, { skip }) => {
      const scenarios = await play("0.2.0-alpha.12", `--scenario ${scenario} --spec-version 2025-11-25 --force`, skip);
      expect(scenarios.get(scenario)).toMatchObject({ ok: true, failed: 0 });
    },
  );

  // The whole stable release is in client.long.test.ts; these are the scenarios that the later one does not have.
  it.for(["auth/2025-03-26-oauth-endpoint-fallback", "auth/cross-app-access-complete-flow"])(
    "the client scenario %s of the conformance suite's last stable release passes",
    { timeout: TIMEOUT_MS },
    async (scenario, { skip }) => {
      const scenarios = await play("0.1.16", `--scenario ${scenario}`, skip);
      expect(scenarios.get(scenario)).toMatchObject({ ok: true, failed: 0 });
    },
  );
});
