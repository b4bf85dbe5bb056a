import { describe, expect, it } from "vitest";
import type { ToolSummary } from "./cedar/types.js";
import type { Check } from "./decide.js";
import { createGate, type GateOptions } from "./gate.js";
import { makeIntent } from "./intent.js";
import { Permit } from "./permit.js";
import { type CallTarget, deny, PERMIT, type Principal } from "./types.js";

const alice: Principal = { app: "shop", agent: "alice", scope: [], via: "test" };
const tools: ToolSummary[] = [
  {
    name: "pay",
    server: "bank",
    inputSchema: { type: "object", properties: { amount: { type: "integer" } }, required: ["amount"] },
  },
];
const target: CallTarget = {
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
};
const POLICY = `
@id("pay-small") permit (principal, action == Action::"pay", resource) when { context.arguments.amount < 1000 };
@id("ask-big") @outcome("challenge") @approvers("operators") @reason("big payments need a person")
forbid (principal, action == Action::"pay", resource) when { context.arguments.amount >= 100 } unless { context.approved };
`;
const operator = { name: "olga", groups: ["operators"] };

async function ask(options: GateOptions, amount: number, more: Partial<CallTarget> = {}) {
  const gate = createGate({ tools, ...options });
  return { gate, decision: await askAgain(gate, amount, more) };
}

async function askAgain(gate: ReturnType<typeof createGate>, amount: number, more: Partial<CallTarget> = {}) {
  const about = { ...target, ...more };
  const args = { amount };
  const intent = makeIntent({ principal: alice, method: "tools/call", target: about, arguments: args, forwarded: {} });
  return gate.decide(
    { principal: alice, method: "tools/call", target: about, arguments: args, transport: "memory" },
    intent,
  );
}

describe("the gate", () => {
  it("permits what policy permits, with a permit that holds the intent and the policy", async () => {
    const { gate, decision } = await ask({ policy: POLICY }, 5);
    expect(decision.effect).toBe("permit");
    const grant = Permit.spend(decision.permit);
    expect(grant).toMatchObject({ policyHash: gate.policy.hash, principal: alice });
    expect(grant.intent.argumentsText).toBe('{"amount":5}');
  });

  it("denies everything when no policy is loaded", async () => {
    const { decision } = await ask({}, 5);
    expect(decision).toMatchObject({ effect: "deny", permit: undefined });
    expect(decision.reason).toMatch(/no policy/i);
  });

  it("denies what no rule permits", async () => {
    const { decision } = await ask({ policy: POLICY }, 1_000_000);
    expect(decision).toMatchObject({ effect: "deny", permit: undefined });
  });

  it("challenges, then permits exactly once when a person approved [U7]", async () => {
    const { gate, decision } = await ask({ policy: POLICY }, 500);
    expect(decision).toMatchObject({ effect: "challenge", permit: undefined, challengeIsNew: true });
    expect(decision.result.reason).toBe("big payments need a person");
    await gate.approvals.approve(decision.challenge?.id as string, operator);
    expect((await askAgain(gate, 501)).effect).toBe("challenge");
    expect((await askAgain(gate, 500)).permit).toBeInstanceOf(Permit);
    expect((await askAgain(gate, 500)).effect).toBe("challenge");
  });

  it("tells the caller what the person said when a person said no", async () => {
    const { gate, decision } = await ask({ policy: POLICY }, 500);
    await gate.approvals.deny(decision.challenge?.id as string, operator, "ask me on Monday");
    expect(await askAgain(gate, 500)).toMatchObject({ effect: "deny", reason: "ask me on Monday", permit: undefined });
  });

  it("evaluates the policy again at redemption", async () => {
    const { gate, decision } = await ask({ policy: POLICY }, 500);
    await gate.approvals.approve(decision.challenge?.id as string, operator);
    gate.swap(createGate({ tools, policy: `${POLICY} @id("stop") forbid (principal, action, resource);` }).policy);
    expect(await askAgain(gate, 500)).toMatchObject({ effect: "deny", permit: undefined });
  });

  it("denies when one check denies, whatever the order of the checks", async () => {
    const yes: Check = () => PERMIT;
    const no: Check = () => deny("PolicyDeny", "host.rule", "outside the roots");
    for (const checks of [[yes, no], [no, yes], [no]]) {
      const { decision } = await ask({ policy: POLICY, checks }, 5);
      expect(decision).toMatchObject({ effect: "deny", reason: "outside the roots", permit: undefined });
    }
    expect((await ask({ policy: POLICY, checks: [yes] }, 5)).decision.effect).toBe("permit");
  });

  it("names the rule of every check in a permit, in order, whether or not it had to be waited for", async () => {
    const named = (id: string) => ({ effect: "permit" as const, rules: [{ id }], reason: "" });
    const checks: Check[] = [() => named("first"), async () => named("second"), () => PERMIT, () => named("third")];
    const { decision } = await ask({ policy: POLICY, checks }, 5);
    expect(decision.rules.map((rule) => rule.id)).toEqual([expect.any(String), "first", "second", "third"]);
  });

  it("decides at once where no check has to be waited for", () => {
    const gate = createGate({ tools, policy: POLICY, checks: [() => PERMIT] });
    const args = { amount: 5 };
    const about = { principal: alice, method: "tools/call", target, arguments: args };
    const decision = gate.decide({ ...about, transport: "memory" }, makeIntent({ ...about, forwarded: {} }));
    expect(decision).toMatchObject({ effect: "permit", permit: expect.any(Permit) });
  });

  it("waits for what only looks like a promise, and asks no check after one that denied", async () => {
    let asked = 0;
    const no = (resolve: (result: unknown) => void): void => resolve(deny("PolicyDeny", "late", "said no"));
    // oxlint-disable-next-line unicorn/no-thenable
    const late = (() => ({ then: no })) as unknown as Check;
    const counting: Check = () => {
      asked++;
      return PERMIT;
    };
    const { decision } = await ask({ policy: POLICY, checks: [counting, late, counting] }, 5);
    expect(decision).toMatchObject({ effect: "deny", reason: "said no", permit: undefined });
    expect(asked).toBe(1);
  });

  it("denies when a check throws", async () => {
    const broken: Check = () => {
      throw new Error("no disk");
    };
    const later: Check = async () => {
      throw new Error("no disk");
    };
    for (const check of [broken, later]) {
      const { decision } = await ask({ policy: POLICY, checks: [check] }, 5);
      expect(decision).toMatchObject({ effect: "deny", reason: "deciding failed: no disk", permit: undefined });
    }
  });

  it("denies a tool without a guardrail unless none is required [L8]", async () => {
    const { decision } = await ask({ policy: POLICY }, 5, { noGuardrailRequired: false });
    expect(decision).toMatchObject({ effect: "deny", permit: undefined, result: { type: "GuardrailBlocked" } });
  });

  it("asks a guardrail once a call, however slowly it answers", async () => {
    let asked = 0;
    const callback = async (): Promise<undefined> => {
      asked++;
      await new Promise((resolve) => setTimeout(resolve, 5));
      return undefined;
    };
    const { decision } = await ask({ policy: POLICY, guardrails: [{ id: "g", agent: "*", tool: "*", callback }] }, 5);
    expect(decision.permit).toBeInstanceOf(Permit);
    expect(asked).toBe(1);
  });

  it("never permits what policy denies because a guardrail lets it pass", async () => {
    const guardrails = [{ id: "g", agent: "*", tool: "*", callback: () => undefined }];
    const { decision } = await ask({ policy: POLICY, guardrails }, 1_000_000, { noGuardrailRequired: false });
    expect(decision.permit).toBeUndefined();
  });

  it("counts denied calls for their agent, and never for the application that others share [H11]", async () => {
    const { gate, decision } = await ask({ policy: POLICY, limits: [{ per: "agent", perMinute: 2 }] }, 1_000_000);
    expect(decision).toMatchObject({ effect: "deny", result: { type: "PolicyDeny" } });
    expect((await askAgain(gate, 5)).effect).toBe("permit");
    expect(await askAgain(gate, 1_000_000)).toMatchObject({ result: { type: "RateLimited" } });
    expect(await askAgain(gate, 5)).toMatchObject({ effect: "deny", result: { type: "RateLimited" } });
    const shared = createGate({ tools, policy: POLICY, limits: [{ per: "app", perMinute: 1 }] });
    for (let i = 0; i < 3; i++) expect((await askAgain(shared, 1_000_000)).result.type).toBe("PolicyDeny");
    expect((await askAgain(shared, 5)).effect).toBe("permit");
  });

  it("charges limits before an approval request is opened, and not again when the call continues after waiting", async () => {
    const gate = createGate({ tools, policy: POLICY, limits: [{ per: "agent", perMinute: 1 }] });
    const first = await askAgain(gate, 500);
    expect(first.effect).toBe("challenge");
    expect(await askAgain(gate, 501)).toMatchObject({ effect: "deny", result: { type: "RateLimited" } });
    expect(await gate.approvals.list()).toHaveLength(1);
    await gate.approvals.approve(first.challenge?.id as string, operator);
    const args = { amount: 500 };
    const intent = makeIntent({ principal: alice, method: "tools/call", target, arguments: args, forwarded: {} });
    const proposed = { principal: alice, method: "tools/call", target, arguments: args, transport: "memory" };
    // Over the limit the approval is not spent…
    expect((await gate.decide(proposed, intent)).result.type).toBe("RateLimited");
    // …and a call that waited continues.
    expect((await gate.decide(proposed, intent, true)).permit).toBeInstanceOf(Permit);
  });

  it("denies, retryably and naming the bound, what would be one approval request too many", async () => {
    const gate = createGate({ tools, policy: POLICY, approvalLimits: { perAgent: 1 } });
    const first = await askAgain(gate, 500);
    expect(await askAgain(gate, 501)).toMatchObject({
      effect: "deny",
      reason: expect.stringContaining("limits.approvals.perAgent"),
      result: { type: "RateLimited", extra: { retry_after_ms: expect.any(Number) } },
    });
    expect((await askAgain(gate, 500)).challenge?.id).toBe(first.challenge?.id);
    await gate.approvals.deny(first.challenge?.id as string, operator, "no");
    expect((await askAgain(gate, 501)).effect).toBe("challenge");
  });

  it("denies what is too long for an approver to read, forwarded fields included", async () => {
    const gate = createGate({ tools, policy: POLICY, approvalLimits: { maxBytes: 100 } });
    const args = { amount: 500 };
    const forwarded = { note: "x".repeat(100) };
    const intent = makeIntent({ principal: alice, method: "tools/call", target, arguments: args, forwarded });
    const proposed = { principal: alice, method: "tools/call", target, arguments: args, transport: "memory" };
    expect(await gate.decide(proposed, intent)).toMatchObject({
      effect: "deny",
      rules: [{ id: "approvals.maxBytes" }],
      reason: expect.stringContaining("at most 100"),
    });
    expect(await gate.approvals.list()).toEqual([]);
  });

  it("opens no approval request for what a guardrail blocks", async () => {
    const guardrails = [{ id: "g", agent: "*", tool: "*", callback: () => "never" }];
    const { gate, decision } = await ask({ policy: POLICY, guardrails }, 500);
    expect(decision).toMatchObject({ effect: "deny", result: { type: "GuardrailBlocked" } });
    expect(await gate.approvals.list()).toEqual([]);
  });

  it("gives an approval back for a call that was not started [U7]", async () => {
    const { gate, decision } = await ask({ policy: POLICY }, 500);
    await gate.approvals.approve(decision.challenge?.id as string, operator);
    const permitted = await askAgain(gate, 500);
    await permitted.restoreApproval?.();
    expect((await askAgain(gate, 500)).permit).toBeInstanceOf(Permit);
    expect((await askAgain(gate, 500)).effect).toBe("challenge");
  });

  it("observes: decides and says so, but lets the call run", async () => {
    const { decision } = await ask({ policy: POLICY, observe: true }, 1_000_000);
    expect(decision).toMatchObject({ effect: "deny", observed: true });
    expect(decision.permit).toBeInstanceOf(Permit);
    const blocking = [{ id: "g", agent: "*", tool: "*", callback: () => "never" }];
    expect((await ask({ policy: POLICY, observe: true, guardrails: blocking }, 5)).decision.permit).toBeUndefined();
  });

  it("keeps one policy per decision while policies are swapped", async () => {
    const slow: Check = async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      return PERMIT;
    };
    const gate = createGate({ tools, policy: POLICY, checks: [slow] });
    const before = gate.policy.hash;
    const pending = askAgain(gate, 5);
    gate.swap(createGate({}).policy);
    expect(await pending).toMatchObject({ effect: "permit", policyHash: before });
    expect((await askAgain(gate, 5)).effect).toBe("deny");
  });
});
