import { describe, expect, it } from "vitest";
import { makeIntent } from "../intent.js";
import type { CallTarget, PolicyInput } from "../types.js";
import type { DelegationChain, DelegationRules } from "./chain.js";
import { delegationCheck, type SharedNonces } from "./check.js";

const rules: DelegationRules = {
  workflow: "w",
  isRoot: () => true,
  offered: () => new Set(["f.read"]),
  passedOn: () => () => true,
  takes: () => true,
  admits: () => true,
  allows: () => true,
  fits: () => true,
  toolOf: (capability) => capability,
  capabilityOf: (tool) => tool,
};

const chain = (more: Partial<DelegationChain> = {}): DelegationChain => ({
  agent: "b",
  app: "local",
  capabilities: new Set(["f.read"]),
  agents: ["a", "b"],
  hops: [{ kind: "hop", to: "b", arguments: { "f.read": { maxProperties: 0 } } }],
  use: undefined,
  expires: Infinity,
  record: {},
  ...more,
});

async function rule(
  changed: Partial<DelegationRules>,
  delegation: DelegationChain | undefined,
  more: Partial<CallTarget> = {},
  shared?: SharedNonces,
) {
  const target: CallTarget = {
    type: "Tool",
    name: "f.read",
    action: "f.read",
    binding: "",
    server: "",
    definitionHash: "",
    tags: [],
    readOnly: false,
    noGuardrailRequired: true,
    builtin: false,
    ...more,
  };
  const principal = { app: "local", agent: "b", scope: [], via: "delegation", ...(delegation ? { delegation } : {}) };
  const proposed: PolicyInput = { principal, method: "tools/call", target, arguments: {}, transport: "http" };
  const intent = makeIntent({ ...proposed, forwarded: {} });
  const verdict = await delegationCheck(() => ({ ...rules, ...changed }), shared)(proposed, intent);
  return verdict.effect === "permit" ? "permit" : verdict.rules[0]?.id;
}

describe("the workflow's check", () => {
  it("permits what every part of the chain lets through", async () => {
    expect(await rule({}, chain())).toBe("permit");
  });

  it("denies an agent outside the workflow, and a target that is not a tool", async () => {
    expect(await rule({}, undefined)).toBe("workflow.identity");
    expect(await rule({}, chain(), { type: "Resource" })).toBe("workflow.scope");
  });

  it("denies when any one of its questions is answered no, at once or later", async () => {
    const no = () => Promise.resolve(false);
    expect(await rule({ takes: no }, chain())).toBe("workflow.scope");
    expect(await rule({ admits: no }, chain())).toBe("workflow.scope");
    expect(await rule({ fits: () => false }, chain())).toBe("workflow.scope");
    expect(await rule({ allows: no }, chain())).toBe("workflow.allow");
    expect(await rule({ capabilityOf: () => undefined }, chain())).toBe("workflow.scope");
    expect(await rule({}, chain({ capabilities: new Set() }))).toBe("workflow.scope");
  });

  it("denies what has expired since the request came in, as when it waited for a person", async () => {
    expect(await rule({}, chain({ expires: Date.now() - 1 }))).toBe("delegation.expired");
  });

  it("denies a token that another replica has accepted, and one whose use cannot be determined", async () => {
    const use = () =>
      chain({ use: { kind: "use", nonce: "n", issued: 0, expires: Infinity } as unknown as DelegationChain["use"] });
    const known = new Set<string>();
    const shared: SharedNonces = {
      first: async (id) => known.size < known.add(id).size,
    };
    expect(await rule({}, use(), {}, shared)).toBe("permit");
    expect(await rule({}, use(), {}, shared)).toBe("delegation.replayed");
    const away: SharedNonces = { first: () => Promise.reject(new Error("the store is away")) };
    await expect(rule({}, use(), {}, away)).rejects.toThrow("away");
  });
});
