// A thousand reloads while calls run: every call is decided under a policy that was live, and none is dropped.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { read } from "../../src/ledger/index.js";
import { connect } from "../../src/mcp/client/index.js";
import type { PolicySet } from "../../src/policy/index.js";
import { startGateway } from "../../src/runtime/start.js";
import { createServer } from "../../src/server.js";

const RELOADS = Number(process.env.RELOADS ?? 1_000);
const CALLERS = 8;

it(`${RELOADS} reloads under load: each call's recorded policy was live, none is dropped [G8]`, async () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-reload-"));
  let ran = 0;
  const server = createServer({ name: "reload", version: "1" }).tool(
    "count",
    "counts",
    { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
    () => String(ran++),
    { noGuardrailRequired: true },
  );
  const policyFile = join(dir, "p.cedar");
  const write = (n: number): void =>
    writeFileSync(
      policyFile,
      `@id("r${n}") permit (principal, action == Action::"count", resource) when { context.arguments.n >= 0 };`,
    );
  write(0);
  const runtime = await startGateway({
    stateDir: join(dir, "state"),
    inProcess: { app: "local", server },
    policy: [policyFile],
    http: { host: "127.0.0.1", port: 0 },
    telemetry: { log: { level: "critical" } },
  });
  const first = await runtime.applications.get("local");
  const inForce = (): PolicySet => (runtime.applications.peek("local") ?? first)?.gate.policy as PolicySet;
  const live = new Set([inForce().hash]);
  let stop = false;
  let answered = 0;
  const callers = Array.from({ length: CALLERS }, async () => {
    const client = await connect(runtime.listeners[0]?.url as string);
    while (!stop) {
      const result = await client.callTool("count", { n: answered });
      expect(result.isError, JSON.stringify(result)).not.toBe(true);
      answered++;
    }
    await client.close();
  });
  for (let n = 1; n <= RELOADS; n++) {
    write(n);
    const reload = await runtime.reloadPolicies();
    // The watcher may have been first; what counts is that the new rules hold now.
    expect(reload.outcome).not.toBe("refused");
    expect(inForce().rules.map((rule) => rule.id)).toEqual([`r${n}`]);
    live.add(inForce().hash);
    if (n % 50 === 0) await sleep(5);
  }
  stop = true;
  await Promise.all(callers);
  await runtime.close();
  let decisions = 0;
  const interim = new Set<string>();
  const used = new Set<string>();
  for await (const { record } of read(join(dir, "state", "ledger"))) {
    // Until a change is on record the stricter of both policies is in force, under a hash of its own.
    if (record.kind === "policy" && typeof record.detail?.interim === "string") interim.add(record.detail.interim);
    if (record.kind !== "decision" || record.tool !== "count") continue;
    decisions++;
    used.add(record.policy);
  }
  expect(decisions).toBe(answered);
  expect(ran).toBe(answered);
  expect([...used].filter((hash) => !live.has(hash) && !interim.has(hash))).toEqual([]);
  expect(live.size).toBe(RELOADS + 1);
  expect(used.size).toBeGreaterThan(Math.min(20, RELOADS / 10));
  console.log(`${RELOADS} reloads, ${answered} calls under ${used.size} policies`);
  rmSync(dir, { recursive: true, force: true });
});
