import { describe, expect, it } from "vitest";
import type { LedgerEntry } from "../ledger/index.js";
import type { Principal } from "../policy/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { Refusals } from "./calls-in-flight.js";

const alice: Principal = { app: "blog", agent: "alice", credential: "key:1", scope: [], via: "key" };
const bob: Principal = { ...alice, agent: "bob", credential: "key:2" };

function refusals(perMinute: number, append: (entry: LedgerEntry) => Promise<never> | Promise<void>) {
  const clock = { now: 0 };
  const telemetry = createTelemetry({ log: { level: "critical" }, env: {} });
  const ledger = { append: append as never };
  return { clock, refusals: new Refusals({ perMinute, ledger, telemetry, now: () => clock.now }) };
}

describe("the budget of refusals", () => {
  it("stops a credential that used it up, lets others pass, and comes back with time", () => {
    const { clock, refusals: budget } = refusals(60, async () => {});
    for (let i = 0; i < 60; i++) {
      expect(budget.exceeded(alice)).toBeUndefined();
      budget.charge(alice);
    }
    const fault = budget.exceeded(alice);
    expect(fault).toMatchObject({ type: "RateLimited", detail: { rule: "limit.refusals" } });
    expect(fault?.detail.extra?.retry_after_ms).toBe(1_000);
    expect(budget.exceeded(bob)).toBeUndefined();
    clock.now = 1_000;
    expect(budget.exceeded(alice)).toBeUndefined();
    budget.charge(alice);
    expect(budget.exceeded(alice)).toBeDefined();
  });

  it("records the sum of what was refused unseen, and keeps it while the ledger cannot be written", async () => {
    const entries: LedgerEntry[] = [];
    let isBroken = true;
    const { refusals: budget } = refusals(1, async (entry) => {
      if (isBroken) throw new Error("the disk is full");
      entries.push(entry);
    });
    budget.charge(alice);
    for (let i = 0; i < 500; i++) budget.exceeded(alice);
    await budget.flush();
    for (let i = 0; i < 500; i++) budget.exceeded(alice);
    isBroken = false;
    await budget.flush();
    await budget.flush();
    expect(entries).toMatchObject([
      {
        kind: "admin",
        actor: "gateway",
        action: "calls.refused",
        detail: { app: "blog", agent: "alice", calls: 1_000 },
      },
    ]);
  });
});
