// Every client scenario of the last stable release of the MCP conformance suite. client.test.ts runs the later release.

import { describe, expect, it } from "vitest";
import { OAUTH, playScenarios } from "./client-scenarios.js";
import { TIMEOUT_MS } from "./suite.js";

/**
 * Its authorization server describes itself under another issuer's name, which a client must refuse (RFC 8414, 3.3);
 * the later release mends that, and has a scenario in which exactly this has to be refused.
 */
const WRONG_ISSUER = "auth/2025-03-26-oauth-metadata-backcompat";

describe("the conformance suite's client scenarios", () => {
  const play = playScenarios();

  it("all client scenarios of the conformance suite's last stable release pass", { timeout: TIMEOUT_MS }, async ({
    skip,
  }) => {
    const scenarios = await play("0.1.16", "--suite all", skip, [WRONG_ISSUER]);
    expect(scenarios.delete(WRONG_ISSUER)).toBe(true);
    expect([...scenarios.keys()]).toEqual(
      expect.arrayContaining([
        ...["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"],
        ...OAUTH,
        "auth/2025-03-26-oauth-endpoint-fallback",
        "auth/cross-app-access-complete-flow",
      ]),
    );
    expect([...scenarios].filter(([, scenario]) => !scenario.ok)).toEqual([]);
  });
});
