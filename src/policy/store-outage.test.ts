import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { type PostgresCluster, startPostgres } from "../storage/fixtures/postgres.js";
import { openStorage, type Storage } from "../storage/index.js";
import { StoredApprovals } from "./approvals.js";
import { createGate } from "./gate.js";
import { makeIntent } from "./intent.js";
import type { CallTarget, PolicyInput } from "./types.js";

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

function gateOver(approvals: StoredApprovals) {
  const tools = [{ name: "a.b", server: "a", inputSchema: { type: "object" } }];
  const gate = createGate({ policy: ASK, tools, approvals });
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
  return { gate, proposed, intent };
}

it("restores the approval of a call that never started within five seconds of a long store outage", async () => {
  const own = await openStorage("sqlite::memory:");
  const approvals = new StoredApprovals(own.challenges);
  const { gate, proposed, intent } = gateOver(approvals);
  const { challenge } = await gate.decide(proposed, intent);
  const id = challenge?.id as string;
  await own.challenges.move(id, "pending", "approved");
  const decision = await gate.decide(proposed, intent);
  expect(decision.effect).toBe("permit");
  expect((await own.challenges.get(id))?.state).toBe("redeemed");
  const restore = vi.spyOn(approvals, "restore").mockRejectedValue(new Error("the store is away"));
  vi.useFakeTimers();
  try {
    void decision.restoreApproval?.();
    await vi.advanceTimersByTimeAsync(120_000);
    restore.mockRestore();
    await vi.advanceTimersByTimeAsync(5_000);
  } finally {
    vi.useRealTimers();
  }
  await vi.waitFor(async () => expect((await own.challenges.get(id))?.state).toBe("approved"), 10_000);
  await own.close();
});

it("reports a store outage as unavailable and retryable, not as a denial by policy [U7]", {
  timeout: 60_000,
}, async () => {
  const { gate, proposed, intent } = gateOver(new StoredApprovals(storage.challenges));
  expect((await gate.decide(proposed, intent)).effect).toBe("challenge");
  await cluster.halt("immediate");
  const began = performance.now();
  const decision = await gate.decide(proposed, intent);
  expect(performance.now() - began).toBeLessThan(30_000);
  expect(decision.permit).toBeUndefined();
  expect(decision.result).toMatchObject({ type: "Unavailable", extra: { retry_after_ms: 1_000 } });
  expect(decision.reason).not.toContain("PostgreSQL");
  await cluster.start();
  expect((await gate.decide(proposed, intent)).effect).toBe("challenge");
});
