// The conformance suite through the gateway, in front of the same fixture server: in each era, and from one into the
// other as far as the eras allow.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openWorld, PERMIT_ALL, type World } from "../../src/gateway/fixtures/world.js";
import type { Server } from "../../src/server.js";
import { fixtureServer } from "./fixture.js";
import { suite, summary, TIMEOUT_MS, unavailable } from "./suite.js";

const SCORED: Readonly<Record<string, number>> = { "2025-11-25": 30, "2026-07-28": 37 };
const NOT_SCORED = /^(tasks-|json-schema-2020-12|server-sse-polling|server-session-lifecycle|http-(custom-)?header)/;

/** The scenarios use what a server may only do where a rule says so. */
const POLICY = `${PERMIT_ALL}
  permit (
    principal == Server::"fixture",
    action in [Action::"elicitation/create", Action::"sampling/createMessage", Action::"roots/list"],
    resource
  );`;

/** Client's revision, server's revision, and scenarios that cannot pass between the two, with the reason. */
const PAIRS: readonly (readonly [string, string, Readonly<Record<string, string>>])[] = [
  ["2025-11-25", "2025-11-25", {}],
  ["2026-07-28", "2026-07-28", {}],
  ["2025-11-25", "2026-07-28", {}],
  [
    "2026-07-28",
    "2025-11-25",
    {
      "input-required-result-basic-elicitation":
        "wants the name that the tool's author gave the question; a question of 2025-11-25 has none on the wire",
    },
  ],
];

describe.each(PAIRS)(
  "the conformance suite for %s, with a server that speaks %s behind the gateway",
  (client, server, cannot) => {
    const results = mkdtempSync(join(tmpdir(), "portcullis-conformance-"));
    let fixture: Server;
    let world: World;

    beforeAll(async () => {
      fixture = fixtureServer();
      const { url } = await fixture.listen({ transport: "http", port: 0 });
      world = await openWorld({
        downstream: server,
        policy: POLICY,
        identify: () => ({ app: "suite", agent: "suite", scope: [], via: "key" }),
      });
      await world.put("suite", { servers: { fixture: { url, noGuardrail: ["*"] } } });
    });
    afterAll(async () => {
      await world.close();
      await fixture.close();
      rmSync(results, { recursive: true, force: true });
    });

    it(`the conformance suite for ${client} passes through the gateway to a server of ${server}, except for what the revisions do not share`, {
      timeout: TIMEOUT_MS,
    }, async ({ skip }) => {
      const missing = await unavailable("0.2.0-alpha.12");
      if (missing !== undefined) {
        console.log(missing);
        return skip(missing);
      }
      const { output } = await suite(
        "0.2.0-alpha.12",
        `server --url ${world.url} --requirements ${client} -o ${results}`,
      );
      const scored = [...summary(output)].filter(([name]) => !NOT_SCORED.test(name));
      const failed = scored.filter(([, scenario]) => !scenario.ok).map(([name]) => name);
      console.log(
        `${client} client, ${server} server: ${scored.length - failed.length} of ${scored.length} scored scenarios`,
      );
      expect(failed.sort()).toEqual(Object.keys(cannot).sort());
      expect(scored).toHaveLength(SCORED[client] as number);
    });
  },
);
