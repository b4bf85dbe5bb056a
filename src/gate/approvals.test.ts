import { describe, expect, it } from "vitest";
import { type Approver, MemoryApprovals } from "./approvals.js";
import { makeIntent } from "./intent.js";
import type { Principal, Target } from "./types.js";

const alice: Principal = { app: "blog", agent: "alice", scope: [], via: "test" };
const target = { name: "t", binding: "b", definitionHash: "h" } as Target;
const operator: Approver = { name: "olga", groups: ["operators"] };

function request(args: Record<string, string> = {}, more: object = {}) {
  const intent = makeIntent({ principal: alice, method: "tools/call", target, arguments: args, forwarded: {} });
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
  it("is joined by an identical retry", async () => {
    const approvals = new MemoryApprovals();
    const first = await approvals.open(request({ a: "1" }));
    const second = await approvals.open(request({ a: "1" }));
    expect(second.challenge.id).toBe(first.challenge.id);
    expect([first.isNew, second.isNew]).toEqual([true, false]);
  });

  it.each([
    ["other arguments", request({ a: "2" })],
    ["another agent", request({ a: "1" }, { principal: { ...alice, agent: "bob" } })],
    ["another rule", request({ a: "1" }, { rules: [{ id: "r2" }] })],
    ["other approvers", request({ a: "1" }, { approvers: ["admins"] })],
    ["another definition", request({ a: "1" }, { target: { ...target, definitionHash: "h2" } })],
    ["other answers", request({ a: "1" }, { inputResponses: { q: {} } })],
  ])("is not joined by %s", async (_what, other) => {
    const approvals = new MemoryApprovals();
    const first = await approvals.open(request({ a: "1" }));
    expect((await approvals.open(other)).challenge.id).not.toBe(first.challenge.id);
  });

  it("is redeemed exactly once, however many try at the same time", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await approvals.approve(challenge.id, operator);
    const tries = await Promise.all(Array.from({ length: 50 }, () => approvals.redeem(challenge.id)));
    expect(tries.filter(Boolean)).toHaveLength(1);
  });

  it("cannot be redeemed before it is approved, nor after it was denied", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    expect(await approvals.redeem(challenge.id)).toBe(false);
    await approvals.deny(challenge.id, operator, "not today");
    expect(await approvals.redeem(challenge.id)).toBe(false);
    await expect(approvals.approve(challenge.id, operator)).rejects.toThrow(/already denied/);
  });

  it("cannot be approved by whoever asked, nor by someone outside the groups", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    await expect(approvals.approve(challenge.id, { ...operator, caller: "blog/alice" })).rejects.toThrow(
      /cannot approve it/,
    );
    await expect(approvals.approve(challenge.id, { name: "eve", groups: ["guests"] })).rejects.toThrow(/operators/);
  });

  it("of another application is not there for an application's own approver", async () => {
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

  it("wakes whoever waits for it", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    const waiting = approvals.settled(challenge.id, 60_000);
    await approvals.approve(challenge.id, operator);
    expect((await waiting)?.state).toBe("approved");
  });

  it("stops waiting after the time given", async () => {
    const approvals = new MemoryApprovals();
    const { challenge } = await approvals.open(request());
    expect((await approvals.settled(challenge.id, 10))?.state).toBe("pending");
  });

  it("is one of a bounded number", async () => {
    const approvals = new MemoryApprovals({ maxOpen: 3 });
    for (let i = 0; i < 3; i++) await approvals.open(request({ a: String(i) }));
    await expect(approvals.open(request({ a: "3" }))).rejects.toThrow(/3 challenges are already open/);
  });
});
