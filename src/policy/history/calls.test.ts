import { describe, expect, it } from "vitest";
import type { ToolSummary } from "../cedar/types.js";
import type { Check } from "../decide.js";
import { createGate, type GateOptions } from "../gate.js";
import { makeIntent } from "../intent.js";
import { type CallTarget, PERMIT, type Principal } from "../types.js";
import { type CallEvent, CallHistory } from "./calls.js";

const alice: Principal = { app: "shop", agent: "alice", scope: [], via: "test" };
const tools: ToolSummary[] = ["pay", "look"].map((name) => ({
  name,
  server: "bank",
  inputSchema: { type: "object", properties: { amount: { type: "integer" }, to: { type: "string" } } },
}));
const pay = {
  type: "Tool",
  name: "pay",
  action: "pay",
  binding: "local:bank",
  server: "bank",
  definitionHash: "h",
  tags: [],
  readOnly: false,
  noGuardrailRequired: true,
  builtin: false,
} satisfies CallTarget;

const AT_MOST_TWO = `
permit (principal, action, resource);
forbid (principal, action == Action::"pay", resource)
when temporal { count_within(1h, Action::"pay"::permitted{ principal: principal }) >= 2 };
`;

function gateWith(options: GateOptions) {
  const gate = createGate({ tools, ...options });
  const call = (name: string, args: Record<string, string | number> = {}, principal = alice) => {
    const target = { ...pay, name, action: name };
    const intent = makeIntent({ principal, method: "tools/call", target, arguments: args, forwarded: {} });
    return gate.decide({ principal, method: "tools/call", target, arguments: args, transport: "memory" }, intent);
  };
  const effect = async (...args: Parameters<typeof call>) => (await call(...args)).effect;
  return { gate, call, effect };
}

async function effects(count: number, effect: () => Promise<string>): Promise<string[]> {
  return Promise.all(Array.from({ length: count }, effect));
}

describe("rules over past calls in the gate", () => {
  it("permits at most as many calls as a rule says, also when all of them are asked for at once", async () => {
    const slow: Check = async () => {
      await new Promise((resolve) => setTimeout(resolve, 2));
      return PERMIT;
    };
    const { effect } = gateWith({ policy: AT_MOST_TWO, checks: [slow] });
    expect((await effects(6, () => effect("pay"))).filter((each) => each === "permit")).toHaveLength(2);
  });

  it("counts each agent by itself, and forgets what has left the window", async () => {
    let now = 1_000;
    const { effect } = gateWith({ policy: AT_MOST_TWO, history: new CallHistory({ now: () => now }) });
    expect(await effects(3, () => effect("pay"))).toEqual(["permit", "permit", "deny"]);
    expect(await effect("pay", {}, { ...alice, agent: "bob" })).toBe("permit");
    now += 3_600_000;
    expect(await effect("pay")).toBe("deny");
    now += 1;
    expect(await effect("pay")).toBe("permit");
  });

  it("sums amounts, cools down after a denial, and asks at the first use of a tool", async () => {
    const policy = `
permit (principal, action, resource);
@id("budget") forbid (principal, action == Action::"pay", resource)
when temporal { exists (n: Long). (sum_within(a, 1d, Action::"pay"::permitted{ principal: principal, arguments.amount: a }) == n && n + context.arguments.amount > 100) };
@id("cool-down") forbid (principal, action == Action::"look", resource)
when temporal { formerly within 5m Action::"pay"::denied{ principal: principal } };
@id("first") @outcome("challenge") @approvers("ops") forbid (principal, action == Action::"look", resource)
when temporal { never_happened(30d, Action::"look"::permitted{ principal: principal }) } unless { context.approved };
`;
    const { call, effect, gate } = gateWith({ policy });
    const first = await call("look", { to: "x" });
    expect(first.effect).toBe("challenge");
    await gate.approvals.approve(first.challenge?.id ?? "", { name: "olga", groups: ["ops"] });
    expect(await effect("look", { to: "x" })).toBe("permit");
    expect(await effect("look", { to: "y" })).toBe("permit");
    expect(await effect("pay", { amount: 60 })).toBe("permit");
    expect(await effect("pay", { amount: 40 })).toBe("permit");
    const over = await call("pay", { amount: 1 });
    expect([over.effect, over.rules[0]?.id]).toEqual(["deny", "budget"]);
    const cooling = await call("look", { to: "x" });
    expect([cooling.effect, cooling.rules[0]?.id]).toEqual(["deny", "cool-down"]);
  });

  it("needs two persons where a rule says so", async () => {
    const policy = `
permit (principal, action, resource);
forbid (principal, action == Action::"pay", resource)
unless temporal { exists (other: Agent). (formerly within 1h Action::"look"::permitted{ principal: other, arguments.to: context.arguments.to } && other != principal) };
`;
    const { effect } = gateWith({ policy });
    await effect("look", { to: "ann" });
    expect(await effect("pay", { to: "ann" })).toBe("deny");
    await effect("look", { to: "ann" }, { ...alice, agent: "bob" });
    expect(await effect("pay", { to: "ann" })).toBe("permit");
    expect(await effect("pay", { to: "eve" })).toBe("deny");
  });

  it("begins with the calls on record, and denies while they are read and when they cannot be", async () => {
    const recorded: CallEvent = {
      call: { action: "pay", agent: "shop/alice", fields: {} },
      event: "permitted",
      at: Date.now() - 1_000,
      ref: 7,
      id: "c1",
    };
    const history = new CallHistory({
      read: async function* () {
        yield recorded;
        yield { ...recorded, id: "c2" };
      },
    });
    const { effect } = gateWith({ policy: AT_MOST_TWO, history });
    expect(await effect("pay")).toBe("deny");
    expect(await effect("look")).toBe("permit");
    await history.ready();
    expect(await effect("pay")).toBe("deny");
    expect(await effect("pay", {}, { ...alice, agent: "bob" })).toBe("permit");

    const problems: string[] = [];
    const broken = new CallHistory({
      // biome-ignore lint/correctness/useYield: it fails before it has anything to give
      read: async function* () {
        throw new Error("the disk is gone");
      },
      onProblem: (problem) => problems.push(problem),
    });
    const without = gateWith({ policy: AT_MOST_TWO, history: broken });
    await broken.ready();
    const denied = await without.call("pay");
    expect(denied).toMatchObject({ effect: "deny", reason: expect.stringContaining("the disk is gone") });
    expect(problems).toHaveLength(1);
  });

  it("denies every call that a rule is about where other processes decide calls too", async () => {
    const { call, effect } = gateWith({ policy: AT_MOST_TWO, history: new CallHistory({ isShared: true }) });
    expect(await call("pay")).toMatchObject({ effect: "deny", reason: expect.stringContaining("not shared") });
    expect(await effect("look")).toBe("permit");
  });

  it("denies when history holds more than it may", async () => {
    const policy = AT_MOST_TWO.replaceAll("principal: principal", "arguments.to: context.arguments.to");
    const { call } = gateWith({ policy, history: new CallHistory({ maxRows: 3 }) });
    for (const to of ["a", "b", "c"]) expect((await call("pay", { to })).effect).toBe("permit");
    await call("pay", { to: "d" });
    expect(await call("pay", { to: "e" })).toMatchObject({
      effect: "deny",
      reason: expect.stringContaining("more than 3"),
    });
  });
});
