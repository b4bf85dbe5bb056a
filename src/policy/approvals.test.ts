import { describe, expect, it, vi } from "vitest";
import { ByteBudget, type JsonObject } from "../mcp/index.js";
import { ApprovalsFull, type Approver, MemoryApprovals, StoredApprovals } from "./approvals.js";
import { MemoryChallenges } from "./challenges.js";
import { makeIntent } from "./intent.js";
import type { CallTarget, Principal } from "./types.js";

const alice: Principal = { app: "blog", agent: "alice", scope: [], via: "test" };
const target = { name: "t", binding: "b", definitionHash: "h" } as CallTarget;
const operator: Approver = { name: "olga", groups: ["operators"] };

interface Other {
  principal?: Principal;
  target?: CallTarget;
  forwarded?: JsonObject;
  rules?: { id: string }[];
  approvers?: string[];
}

function request(args: Record<string, string> = {}, { forwarded = {}, ...more }: Other = {}) {
  const parts = { principal: alice, target, ...more };
  const intent = makeIntent({ ...parts, method: "tools/call", arguments: args, forwarded });
  return {
    principal: alice,
    method: "tools/call",
    target,
    intent,
    rules: [{ id: "r1" }],
    approvers: ["operators"],
    reason: "risky",
    policyHash: "p",
    ...more,
  };
}

describe("a challenge", () => {
  it("a challenge is joined by an identical retry", async () => {
    const approvals = new MemoryApprovals();
    const first = await approvals.open(request({ a: "1" }));
    const second = await approvals.open(request({ a: "1" }));
    expect(second.challenge.id).toBe(first.challenge.id);
    expect([first.isNew, second.isNew]).toEqual([true, false]);
  });

  it.each([
    ["other arguments", request({ a: "2" })],
    ["another agent", request({ a: "1" }, { principal: { ...alice, agent: "bob" } })],
    ["another holder of a delegation", request({ a: "1" }, { principal: { ...alice, holder: "bob" } })],
    ["another rule", request({ a: "1" }, { rules: [{ id: "r2" }] })],
    ["other approvers", request({ a: "1" }, { approvers: ["admins"] })],
    ["another definition", request({ a: "1" }, { target: { ...target, definitionHash: "h2" } })],
    ["another server", request({ a: "1" }, { target: { ...target, binding: "b2" } })],
    ["other answers", request({ a: "1" }, { forwarded: { inputResponses: { q: {} } } })],
    ["other forwarded fields", request({ a: "1" }, { forwarded: { _meta: { "com.example/x": 1 } } })],
  ])("a challenge is not joined by %s", async (_what, other) => {
    const approvals = new MemoryApprovals();
    const first = await approvals.open(request({ a: "1" }));
    expect((await approvals.open(other)).challenge.id).not.toBe(first.challenge.id);
  });

  it("a challenge is redeemed exactly once, however many try at the same time", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await approvals.approve(challenge.id, operator);
    const tries = await Promise.all(Array.from({ length: 50 }, () => approvals.redeem(challenge.id)));
    expect(tries.filter(Boolean)).toHaveLength(1);
  });

  it("a challenge cannot be redeemed before it is approved, nor after it was denied", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    expect(await approvals.redeem(challenge.id)).toBe(false);
    await approvals.deny(challenge.id, operator, "not today");
    expect(await approvals.redeem(challenge.id)).toBe(false);
    await expect(approvals.approve(challenge.id, operator)).rejects.toThrow(/already denied/);
  });

  it("a challenge cannot be approved by the holder of the delegation that asked", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request({}, { principal: { ...alice, holder: "boss" } }));
    for (const caller of ["blog/boss", "blog/alice"])
      await expect(approvals.approve(challenge.id, { ...operator, caller })).rejects.toThrow("cannot approve it");
  });

  it("a challenge cannot be approved by the requester, nor by an approver outside the groups", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await expect(approvals.approve(challenge.id, { ...operator, caller: "blog/alice" })).rejects.toThrow(
      /cannot approve it/,
    );
    await expect(approvals.approve(challenge.id, { name: "eve", groups: ["guests"] })).rejects.toThrow(/operators/);
  });

  it("a challenge of another application is not there for an application's own approver", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    const stranger = { ...operator, app: "shop" };
    const said = (id: string): Promise<string> =>
      approvals.approve(id, stranger).then(
        () => "approved",
        (error: Error) => error.message.replace(id, "ID"),
      );
    expect(await said(challenge.id)).toBe(await said("ch_none"));
    expect((await approvals.approve(challenge.id, { ...operator, app: "blog" })).state).toBe("approved");
  });

  it("expires: pending and approved alike", async () => {
    let now = 0;
    const approvals = new MemoryApprovals({ ttlMs: 1_000, now: () => now });
    const { challenge } = await approvals.open(request());
    await approvals.approve(challenge.id, operator);
    now = 1_001;
    expect(await approvals.redeem(challenge.id)).toBe(false);
    expect((await approvals.get(challenge.id))?.state).toBe("expired");
    expect((await approvals.open(request())).isNew).toBe(true);
  });

  it("wakes the callers that wait for it", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    const waiting = approvals.settled(challenge.id, 60_000);
    await approvals.approve(challenge.id, operator);
    expect(await waiting).toBe("approved");
  });

  it("stops waiting after the time given", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    expect(await approvals.settled(challenge.id, 10)).toBe("pending");
  });

  it("a challenge is one of a bounded number per agent and per application, and a denial frees its place", async () => {
    const approvals = new MemoryApprovals();
    const bounds = { perApp: 3, perAgent: 2 };
    const bob = (a: string) => request({ a }, { principal: { ...alice, agent: "bob" } });
    const first = await approvals.open(request({ a: "0" }), bounds);
    await approvals.open(request({ a: "1" }), bounds);
    await expect(approvals.open(request({ a: "2" }), bounds)).rejects.toThrow(
      /2 challenges per agent are already open/,
    );
    expect((await approvals.open(request({ a: "0" }), bounds)).isNew).toBe(false);
    await approvals.open(bob("0"), bounds);
    await expect(approvals.open(bob("1"), bounds)).rejects.toThrow(/3 challenges per app are already open/);
    await approvals.open(request({ a: "0" }, { principal: { ...alice, app: "shop" } }), bounds);
    await approvals.deny(first.challenge.id, operator, "no");
    expect((await approvals.open(bob("1"), bounds)).isNew).toBe(true);
    // The answer is still there for a caller that repeats the denied call.
    expect((await approvals.open(request({ a: "0" }), bounds)).challenge).toMatchObject({ denyReason: "no" });
  });

  it("a challenge that was redeemed can be given back, once, and is then redeemed once more", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await approvals.approve(challenge.id, operator);
    expect(await approvals.restore(challenge.id)).toBe(false);
    expect(await approvals.redeem(challenge.id)).toBe(true);
    expect([await approvals.restore(challenge.id), await approvals.restore(challenge.id)]).toEqual([true, false]);
    expect((await approvals.open(request())).challenge).toMatchObject({ id: challenge.id, state: "approved" });
    expect([await approvals.redeem(challenge.id), await approvals.redeem(challenge.id)]).toEqual([true, false]);
  });

  it("a challenge is not given back when an identical call is pending by then", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await approvals.approve(challenge.id, operator);
    await approvals.redeem(challenge.id);
    expect((await approvals.open(request())).isNew).toBe(true);
    expect(await approvals.restore(challenge.id)).toBe(false);
  });

  it("appears in lists without its full arguments", async () => {
    const approvals = new MemoryApprovals();
    const text = "x".repeat(10_000);
    const { challenge } = await approvals.open(request({ text }));
    const [listed] = await approvals.list({ app: "blog", state: "pending" });
    expect(listed).toMatchObject({ id: challenge.id, argumentsChars: 10_011 });
    expect(JSON.stringify(listed).length).toBeLessThan(2_000);
    expect(await approvals.list({ app: "shop" })).toEqual([]);
    expect((await approvals.get(challenge.id))?.argumentsText).toContain(text);
  });
});

describe("calls that wait for an approver", () => {
  it("calls that wait for an approver share one subscription, and look at states alone", async () => {
    const store = new MemoryChallenges();
    const looks = vi.spyOn(store, "get");
    const subscriptions = vi.spyOn(store, "onChange");
    const approvals = new StoredApprovals(store);
    const { challenge } = await approvals.open(request());
    const waiting = Array.from({ length: 500 }, () => approvals.settled(challenge.id, 60_000));
    await approvals.deny(challenge.id, operator, "no");
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(["denied"]));
    expect(subscriptions).toHaveBeenCalledTimes(1);
    // The one that denies reads it in full.
    expect(looks).toHaveBeenCalledTimes(1);
  });
});

describe("approval requests in memory", () => {
  const big = (text: string) => request({ text: text.repeat(20_000) });

  it("approval requests in memory are charged to their caller while they are open, and refused when its budget is used up", async () => {
    const budget = new ByteBudget(100_000);
    const approvals = new MemoryApprovals();
    approvals.chargeTo(() => budget);
    const { challenge } = await approvals.open(big("a"));
    expect(budget.used).toBeGreaterThanOrEqual(40_000);
    await approvals.open(big("b"));
    await expect(approvals.open(big("c"))).rejects.toThrow(ApprovalsFull);
    await approvals.deny(challenge.id, { name: "olga", groups: ["operators"] }, "no");
    await approvals.open(big("c"));
    expect(budget.used).toBeLessThanOrEqual(100_000);
  });

  it("free their budget when they expire", async () => {
    let now = 0;
    const budget = new ByteBudget(100_000);
    const approvals = new MemoryApprovals({ now: () => now, ttlMs: 1_000 });
    approvals.chargeTo(() => budget);
    await approvals.open(big("a"));
    await approvals.open(big("b"));
    now = 2_000;
    await approvals.open(big("c"));
    expect(budget.used).toBeLessThanOrEqual(50_000);
  });
});
