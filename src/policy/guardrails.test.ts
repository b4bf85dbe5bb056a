import { describe, expect, it } from "vitest";
import { CallbackRunner, type Guardrail, GuardrailProof } from "./guardrails.js";
import { makeIntent } from "./intent.js";
import { Permit } from "./permit.js";
import type { CallTarget, Principal } from "./types.js";

const alice: Principal = { app: "blog", agent: "alice", scope: [], via: "test" };
const bob: Principal = { app: "blog", agent: "bob", scope: [], via: "test" };
const target: CallTarget = {
  type: "Tool",
  name: "mail.send",
  action: "mail.send",
  binding: "local:t",
  server: "t",
  definitionHash: "h",
  tags: [],
  readOnly: false,
  noGuardrailRequired: false,
  builtin: false,
};

function intentFor(principal: Principal, to: string) {
  return makeIntent({ principal, method: "tools/call", target, arguments: { to }, forwarded: {} });
}

function runnerWith(...guardrails: Partial<Guardrail>[]): CallbackRunner {
  const runner = new CallbackRunner({ timeoutMs: 200 });
  for (const guardrail of guardrails) {
    runner.register({ id: "g", agent: "blog/alice", tool: "mail.send", callback: () => undefined, ...guardrail });
  }
  return runner;
}

describe("the callback runner", () => {
  it("mints a token when the agent's own callback lets the call pass", async () => {
    expect(await runnerWith({}).run(alice, target, intentFor(alice, "x"))).toHaveProperty("token");
  });

  it("does not let a callback of one agent serve another [L8]", async () => {
    const answer = await runnerWith({}).run(bob, target, intentFor(bob, "x"));
    expect(answer).toMatchObject({ blocked: { effect: "deny", rules: [{ id: "guardrail.missing" }] } });
  });

  it("blocks with the callback's own words", async () => {
    const runner = runnerWith({ callback: ({ arguments: args }) => (args.to === "x" ? "never x" : undefined) });
    expect(await runner.run(alice, target, intentFor(alice, "x"))).toMatchObject({
      blocked: { reason: "never x", type: "GuardrailBlocked", rules: [{ id: "g" }] },
    });
    expect(await runner.run(alice, target, intentFor(alice, "y"))).toHaveProperty("token");
  });

  it.each([
    [true, "answered true"],
    [false, "answered false"],
    [null, "answered null"],
    ["", "answered an empty text"],
    [{ allow: true }, "answered an object"],
    [{ block: undefined }, "answered an object"],
  ])("blocks what answers %j, and says what an answer is", async (answer, reason) => {
    const blocked = await runnerWith({ callback: () => answer as never }).run(alice, target, intentFor(alice, "x"));
    expect(blocked).toMatchObject({ blocked: { reason: expect.stringContaining(reason) } });
    expect(JSON.stringify(blocked)).toContain("returns nothing to let a call pass");
  });

  it.each(["id", "agent", "tool", "callback"])("refuses a guardrail without %s", (field) => {
    expect(() => runnerWith({ [field]: undefined })).toThrow(`\`${field}\` as`);
    if (field !== "callback") expect(() => runnerWith({ [field]: "" })).toThrow(`\`${field}\` as text`);
  });

  it("blocks when any of several callbacks blocks, whatever the order", async () => {
    const pass: Partial<Guardrail> = { id: "pass" };
    const block: Partial<Guardrail> = { id: "block", callback: () => "no" };
    for (const order of [
      [pass, block],
      [block, pass],
    ]) {
      const answer = await runnerWith(...order).run(alice, target, intentFor(alice, "x"));
      expect(answer).toHaveProperty("blocked");
    }
  });

  it("blocks when a callback throws or never answers", async () => {
    const throwing = runnerWith({
      callback: () => {
        throw new Error("broken");
      },
    });
    expect(await throwing.run(alice, target, intentFor(alice, "x"))).toMatchObject({
      blocked: { reason: "guardrail `g` failed: broken" },
    });
    const hanging = runnerWith({ callback: () => new Promise(() => {}) });
    expect(await hanging.run(alice, target, intentFor(alice, "x"))).toMatchObject({
      blocked: { reason: "guardrail `g` did not answer within 200 ms" },
    });
  });

  it("hands callbacks a copy, so that changing the arguments changes nothing", async () => {
    const runner = runnerWith({
      callback: (call) => {
        call.arguments.to = "changed";
        return undefined;
      },
    });
    const intent = intentFor(alice, "x");
    await runner.run(alice, target, intent);
    expect(intent.argumentsText).toBe('{"to":"x"}');
  });

  it("needs no callback for a tool whose author declared that none is required [L8]", async () => {
    const read = { ...target, noGuardrailRequired: true };
    expect(await runnerWith().run(alice, read, intentFor(alice, "x"))).toHaveProperty("token");
  });
});

describe("a guardrail token", () => {
  const grant = (principal: Principal, to: string) => ({
    intent: intentFor(principal, to),
    principal,
    method: "tools/call",
    target,
    policyHash: "p",
    obligations: [],
  });
  const tokenFor = async (principal: Principal, to: string): Promise<GuardrailProof> => {
    const answer = await runnerWith({ agent: "*" }).run(principal, target, intentFor(principal, to));
    return (answer as { token: GuardrailProof }).token;
  };

  it("lets one permit be minted, for its agent and its arguments", async () => {
    expect(Permit.mint(grant(alice, "x"), await tokenFor(alice, "x"))).toBeInstanceOf(Permit);
  });

  it("a guardrail token is spent by the first permit [L8]", async () => {
    const token = await tokenFor(alice, "x");
    Permit.mint(grant(alice, "x"), token);
    expect(() => Permit.mint(grant(alice, "x"), token)).toThrow(/spent, forged/);
  });

  it("a guardrail token cannot be spent by another agent or on other arguments [L8]", async () => {
    const token = await tokenFor(alice, "x");
    expect(() => Permit.mint(grant(bob, "x"), token)).toThrow(/another agent/);
    const other = await tokenFor(alice, "x");
    expect(() => Permit.mint(grant(alice, "y"), other)).toThrow(/other arguments/);
  });

  it("a guardrail token cannot be forged by an object that looks like one [L8]", () => {
    for (const fake of [{}, Object.create(GuardrailProof.prototype), null, "token"]) {
      expect(() => Permit.mint(grant(alice, "x"), fake as GuardrailProof)).toThrow(/forged/);
    }
  });
});

describe("a permit", () => {
  const mint = async (ttlMs?: number): Promise<Permit> => {
    const intent = intentFor(alice, "x");
    const answer = await runnerWith({}).run(alice, target, intent);
    const { token } = answer as { token: GuardrailProof };
    const grant = { intent, principal: alice, method: "tools/call", target, policyHash: "p", obligations: [] };
    return Permit.mint(grant, token, ttlMs);
  };

  it("gives its grant exactly once [L10]", async () => {
    const permit = await mint();
    expect(Permit.spend(permit).policyHash).toBe("p");
    expect(() => Permit.spend(permit)).toThrow(/already spent/);
  });

  it("goes stale", async () => {
    const permit = await mint(-1);
    expect(() => Permit.spend(permit)).toThrow(/expired/);
  });

  it("a permit cannot be forged", () => {
    for (const fake of [{}, Object.create(Permit.prototype), null, undefined, { grant: {} }]) {
      expect(() => Permit.spend(fake)).toThrow("not a valid permit");
    }
  });
});
