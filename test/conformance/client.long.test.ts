// Every client scenario of the last stable release of the MCP conformance suite, and those of the later release that are
// scored for 2025-11-25. client.test.ts runs the later release for 2026-07-28.

import { describe, expect, it } from "vitest";
import { OAUTH, playScenarios, SCORED_2025 } from "./client-scenarios.js";
import { TIMEOUT_MS } from "./suite.js";

/**
 * Its authorization server describes itself under another issuer's name, which a client must refuse (RFC 8414, 3.3);
 * the later release mends that, and has a scenario in which exactly this has to be refused.
 */
const WRONG_ISSUER = "auth/2025-03-26-oauth-metadata-backcompat";

describe("the conformance suite's client scenarios", () => {
  const play = playScenarios();

  it("all client scenarios of the conformance suite that are scored for 2025-11-25 pass", {
    timeout: TIMEOUT_MS,
  }, async ({ skip }) => {
    const scenarios = await play("0.2.0-alpha.12", "--requirements 2025-11-25", skip);
    expect([...scenarios.keys()]).toEqual(expect.arrayContaining([...SCORED_2025, ...OAUTH]));
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });

  it("all client scenarios of the conformance suite's last stable release pass", { timeout: TIMEOUT_MS }, async ({
    skip,
  }) => {
    const scenarios = await play("0.1.16", "--suite all", skip, [WRONG_ISSUER]);
    expect(scenarios.delete(WRONG_ISSUER)).toBe(true);
    expect([...scenarios.keys()]).toEqual(
      expect.arrayContaining([
        ...SCORED_2025,
        ...OAUTH,
        "auth/2025-03-26-oauth-endpoint-fallback",
        "auth/cross-app-access-complete-flow",
      ]),
    );
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });
});
