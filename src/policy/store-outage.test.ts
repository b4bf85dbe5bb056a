import { afterAll, beforeAll, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../storage/fixtures/postgres.js";
import { openStorage, type Storage } from "../storage/index.js";
import { StoredApprovals } from "./approvals.js";
import { createGate } from "./gate.js";
import { makeIntent } from "./intent.js";
import type { PolicyInput, CallTarget } from "./types.js";

const ASK = `permit (principal, action, resource);
@id("ask")
@outcome("challenge")
forbid (principal, action, resource) unless { context.approved };`;

let cluster: PostgresCluster;
let storage: Storage;
beforeAll(async () => {
  cluster = await startPostgres();
  storage = await openStorage(await cluster.database(), { waitMs: 1_500 });
}, 120_000);
afterAll(async () => {
  await storage?.close().catch(() => {});
  await cluster?.stop();
});

it("reports a store outage as unavailable and retryable, not as a denial by policy", { timeout: 60_000 }, async () => {
  const tools = [{ name: "a.b", server: "a", inputSchema: { type: "object" } }];
  const gate = createGate({ policy: ASK, tools, approvals: new StoredApprovals(storage.challenges) });
  gate.guardrails.register({ id: "pass", agent: "*", tool: "*", callback: () => undefined });
  const principal = { app: "blog", agent: "writer", scope: [], via: "local" };
  const target = {
    action: "a.b",
    type: "Tool",
    name: "a.b",
    server: "a",
    tags: [],
    readOnly: false,
    binding: "b",
    definitionHash: "h",
  } as unknown as CallTarget;
  const call = { principal, method: "tools/call", target, arguments: {} };
  const proposed: PolicyInput = { ...call, transport: "memory" };
  const intent = makeIntent({ ...call, forwarded: {} });
  expect((await gate.decide(proposed, intent)).effect).toBe("challenge");
  await cluster.halt("immediate");
  const began = performance.now();
  const decision = await gate.decide(proposed, intent);
  expect(performance.now() - began).toBeLessThan(30_000);
  expect(decision.permit).toBeUndefined();
  expect(decision.verdict).toMatchObject({ type: "Unavailable", extra: { retry_after_ms: 1_000 } });
  expect(decision.reason).not.toContain("PostgreSQL");
  await cluster.start();
  expect((await gate.decide(proposed, intent)).effect).toBe("challenge");
});
