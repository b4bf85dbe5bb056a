import { describe, expect, test } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { loadPolicy } from "./load.js";
import type { PolicyRequest, PolicySet, ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "pay",
    server: "bank",
    tags: ["money"],
    inputSchema: {
      type: "object",
      properties: {
        to: { type: "string" },
        amount: { type: "number" },
        count: { type: "integer" },
        note: { type: "string" },
        items: { type: "array", items: { type: "string" } },
        meta: { type: "object", properties: { ok: { type: "string" }, bad: { type: "string" } } },
        any: {},
      },
    },
  },
  { name: "look", server: "bank", readOnly: true, inputSchema: { type: "object", properties: {} } },
];

function load(text: string): PolicySet {
  return loadPolicy([{ file: "p.cedar", text }], TOOLS);
}

function ask(args: JsonObject = {}, more: Partial<PolicyRequest> = {}): PolicyRequest {
  return {
    app: "shop",
    agent: "till",
    scope: ["pay:small"],
    action: "pay",
    resource: { type: "Tool", id: "pay", server: "bank", tags: ["money"], readOnly: false },
    arguments: args,
    transport: "http",
    ...more,
  };
}

const ALL = '@id("all") permit (principal, action, resource);\n';

describe("Cedar's rules", () => {
  test("a forbid wins whatever the order, and nothing said is a deny", () => {
    const no =
      '@id("no") @reason("not from here") forbid (principal, action, resource) when { context.transport == "http" };\n';
    for (const text of [ALL + no, no + ALL]) {
      expect(load(text).decide(ask())).toMatchObject({ effect: "deny", reason: "not from here", errors: [] });
      expect(load(text).decide(ask({}, { transport: "stdio" }))).toMatchObject({
        effect: "permit",
        rules: [{ id: "all" }],
      });
    }
    expect(load('permit (principal in App::"other", action, resource);').decide(ask())).toMatchObject({
      effect: "deny",
      rules: [],
      reason: "no policy permits this",
    });
  });

  test("agents, applications, servers, tags and scopes are what rules can name", () => {
    for (const text of [
      'permit (principal == Agent::"shop/till", action, resource);',
      'permit (principal in App::"shop", action, resource);',
      'permit (principal, action in Action::"tools/call", resource);',
      'permit (principal, action, resource in Server::"bank");',
      'permit (principal, action, resource in Tag::"money");',
      'permit (principal, action, resource == Tool::"pay");',
      'permit (principal, action, resource) when { principal.scope.contains("pay:small") };',
      'permit (principal, action, resource is Tool) when { resource.tags.contains("money") && !resource.readOnly };',
    ]) {
      expect(load(text).decide(ask()).effect, text).toBe("permit");
      const other = ask(
        {},
        { app: "x", action: "look", scope: [], resource: { type: "Tool", id: "look", server: "y", readOnly: true } },
      );
      const stranger = text.includes("tools/call")
        ? ask({}, { action: "logging/setLevel", resource: { type: "Method", id: "logging/setLevel" } })
        : other;
      expect(load(text).decide(stranger).effect, text).toBe("deny");
    }
  });

  test("what a request leaves out about its tool comes from the tool", () => {
    const policy = load('permit (principal, action, resource in Tag::"money") when { resource.server == "bank" };');
    expect(policy.decide(ask({}, { resource: { type: "Tool", id: "pay" } })).effect).toBe("permit");
  });

  test("every permit that matched is named", () => {
    const policy = load(`${ALL}@id("too") permit (principal, action == Action::"pay", resource);`);
    expect(policy.decide(ask()).rules.map((rule) => `${rule.id}:${rule.line}`)).toEqual(["all:1", "too:2"]);
  });
});

describe("an error denies", () => {
  const reads = (what: string): PolicySet =>
    load(`${ALL}@id("reader") forbid (principal, action == Action::"pay", resource)\nwhen { ${what} };`);

  test("although stock Cedar would skip the rule and permit", () => {
    const policy = load(`${ALL}@id("sum") forbid (principal, action == Action::"pay", resource)
      when { context.arguments has count && context.arguments.count * 9223372036854775807 > 5 };`);
    expect(policy.decide(ask({ count: 1 })).effect).toBe("deny");
    expect(policy.decide(ask({ count: 0 })).effect).toBe("permit");
    const decision = policy.decide(ask({ count: 2 }));
    expect(decision).toMatchObject({ effect: "deny", rules: [{ id: "sum", file: "p.cedar", line: 2 }] });
    expect(decision.errors).toEqual(["sum (p.cedar:2): the result does not fit 64 bits"]);
    expect(decision.reason).toContain("does not fit 64 bits");
    expect(decision.reason).not.toContain("p.cedar");
  });

  test("a null is an error for the rule that reads it and for no other", () => {
    const args = { note: null, to: "x" };
    expect(load(ALL).decide(ask(args)).effect).toBe("permit");
    expect(reads('context.arguments has to && context.arguments.to == "y"').decide(ask(args)).effect).toBe("permit");
    const decision = reads('context.arguments has note && context.arguments.note == "y"').decide(ask(args));
    expect(decision).toMatchObject({ effect: "deny", rules: [{ id: "reader" }] });
    expect(decision.errors[0]).toContain("argument note is null");
  });

  test("floats are decimals where that is exact, and errors where it is not", () => {
    const policy = reads('context.arguments has amount && context.arguments.amount.greaterThan(decimal("10.25"))');
    for (const [amount, effect] of [
      [10.25, "permit"],
      [10.2501, "deny"],
      [10, "permit"],
      [11, "deny"],
      [-0, "permit"],
    ] as const) {
      expect(policy.decide(ask({ amount })), String(amount)).toMatchObject({ effect, errors: [] });
    }
    for (const amount of [0.00001, 1e-7, 1e21, 922337203685478]) {
      const decision = policy.decide(ask({ amount }));
      expect(decision.effect, String(amount)).toBe("deny");
      expect(decision.errors[0]).toContain("not a decimal of at most four digits");
    }
    expect(load(ALL).decide(ask({ amount: 1e-7 })).effect).toBe("permit");
  });

  test("integers past what JSON carries exactly are errors when read", () => {
    const policy = reads("context.arguments has count && context.arguments.count == 9007199254740993");
    expect(policy.decide(ask({ count: 9007199254740991 })).effect).toBe("permit");
    // The text 9007199254740993 arrives as …992: comparing it with anything would be a guess.
    expect(policy.decide(ask({ count: 9007199254740992 })).errors[0]).toContain("past the integers");
  });

  test("a value inside a list or an object counts as read only when the whole is", () => {
    const args = { items: ["a", null], meta: { ok: "x", bad: null } };
    expect(
      reads('context.arguments has items && context.arguments.items.contains("z")').decide(ask(args)).errors,
    ).toHaveLength(1);
    expect(reads('context.arguments has meta.ok && context.arguments.meta.ok == "z"').decide(ask(args)).effect).toBe(
      "permit",
    );
    expect(
      reads('context.arguments has meta.bad && context.arguments.meta.bad == "z"').decide(ask(args)).errors,
    ).toHaveLength(1);
    expect(
      reads('context.arguments has any && context.arguments.any == "z"').decide(ask({ any: { a: null } })).errors,
    ).toHaveLength(1);
    expect(
      reads("context.arguments has any && [1].contains(context.arguments.any)").decide(ask({ any: { a: null } }))
        .errors,
    ).toHaveLength(1);
    expect(
      reads("context.arguments has any && [1].contains(context.arguments.any)").decide(ask({ any: { a: 1 } })).effect,
    ).toBe("permit");
  });

  test("a null counts as present, because it reaches the tool", () => {
    const policy = load(
      `${ALL}forbid (principal, action == Action::"pay", resource) when { context.arguments has note };`,
    );
    expect(policy.decide(ask({ note: null }))).toMatchObject({ effect: "deny", errors: [] });
  });

  test("half of a surrogate pair is an error when read", () => {
    expect(
      reads('context.arguments has to && context.arguments.to == "z"').decide(ask({ to: "\ud800" })).errors,
    ).toHaveLength(1);
  });

  test("a type that the schema does not rule out is an error at run time", () => {
    const policy = reads("context.arguments has any && context.arguments.any > 5");
    expect(policy.decide(ask({ any: 5 })).effect).toBe("permit");
    expect(policy.decide(ask({ any: "6" }))).toMatchObject({ effect: "deny", rules: [{ id: "reader" }] });
  });
});

describe("what callers cannot smuggle in", () => {
  const policy = load(
    `${ALL}forbid (principal, action == Action::"pay", resource) when { context.arguments has any && context.arguments.any == "x" };`,
  );

  test("Cedar's escapes, at any depth, in data that no rule reads", () => {
    for (const value of [
      { __entity: { type: "Agent", id: "shop/boss" } },
      { __extn: { fn: "decimal", arg: "1.0" } },
      { __expr: 'Agent::"shop/boss"' },
      { deep: [{ er: { __entity: 1 } }] },
      { __entity: null, beside: 1 },
    ] as JsonObject[]) {
      const decision = policy.decide(ask({ items: value }));
      expect(decision, JSON.stringify(value)).toMatchObject({ effect: "deny", rules: [] });
      expect(decision.errors[0]).toContain("reserved by the policy language");
    }
    expect(policy.decide(ask({ __entity: { type: "Agent", id: "x" } })).effect).toBe("deny");
    expect(policy.decide(ask({ items: "__entity", to: "__extn" })).effect).toBe("permit");
  });

  test("arguments that call themselves what only the gate may say", () => {
    const strict = load(
      'permit (principal, action == Action::"pay", resource) when { context.transport == "stdio" || principal.app == "bank" };',
    );
    const args = { approved: true, transport: "stdio", principal: "x", app: "bank" } as JsonObject;
    expect(strict.decide(ask(args)).effect).toBe("deny");
  });

  test("names that JavaScript gives a meaning", () => {
    const own = load(
      `${ALL}forbid (principal, action == Action::"pay", resource) when { context.arguments has any && context.arguments.any has constructor };`,
    );
    expect(own.decide(ask({ any: {} })).effect).toBe("permit");
    expect(own.decide(ask({ any: { constructor: 1 } })).effect).toBe("deny");
    expect(own.decide(ask(JSON.parse('{"__proto__":{"any":{"constructor":1}}}') as JsonObject)).effect).toBe("permit");
  });

  test("nesting without end", () => {
    let deep: JsonObject = {};
    for (let i = 0; i < 100_000; i++) deep = { deep };
    expect(policy.decide(ask(deep)).errors[0]).toContain("nested deeper than 128 levels");
  });

  test("a principal that reads like another one", () => {
    const boss = load('permit (principal == Agent::"a/b/c", action, resource);');
    expect(boss.decide(ask({}, { app: "a", agent: "b/c" })).effect).toBe("permit");
    expect(boss.decide(ask({}, { app: "a/b", agent: "c" })).effect).toBe("deny");
  });

  test("a tool that policy was not loaded for", () => {
    expect(policy.decide(ask({}, { action: "new" }))).toMatchObject({
      effect: "deny",
      reason: "policy knows no tool or method new",
    });
    expect(policy.decide(ask({}, { action: "tools/call" })).effect).toBe("deny");
  });

  test("a request so broken that deciding fails is denied, not thrown", () => {
    expect(policy.decide({ action: "pay" } as PolicyRequest).effect).toBe("deny");
    expect(policy.decide(ask(undefined, { scope: undefined as never, resource: undefined as never })).effect).toBe(
      "deny",
    );
  });
});

describe("a challenge", () => {
  const BIG = `@id("big") @outcome("challenge") @approvers("cfo, board") @reason("large payments need a person")
forbid (principal, action == Action::"pay", resource)
when { context.arguments has count && context.arguments.count > 100 } unless { context.approved };\n`;
  const FOREIGN = `@id("foreign") @outcome("challenge") @approvers("compliance")
forbid (principal, action == Action::"pay", resource)
when { context.arguments has to && context.arguments.to like "*.example" } unless { context.approved };\n`;
  const PAY = '@id("pay") permit (principal, action == Action::"pay", resource);\n';
  const policy = load(BIG + FOREIGN + PAY);

  test("is asked for when only approval is missing", () => {
    expect(policy.decide(ask({ count: 101 }))).toEqual({
      effect: "challenge",
      rules: [{ id: "big", file: "p.cedar", line: 1 }],
      reason: "large payments need a person",
      approvers: ["cfo", "board"],
      obligations: [],
      errors: [],
    });
    expect(policy.decide(ask({ count: 100 })).effect).toBe("permit");
    expect(policy.decide(ask({ to: "a.example" })).reason).toBe("this action requires approval");
  });

  test("is not asked for where no permit covers the call: then it is a deny", () => {
    const decision = load(BIG).decide(ask({ count: 101 }));
    expect(decision).toMatchObject({ effect: "deny", rules: [], reason: "no policy permits this" });
  });

  test("is not asked for where another rule forbids anyway, and that rule is named", () => {
    const firm = load(`${BIG}${PAY}@id("never") forbid (principal, action == Action::"pay", resource);`);
    expect(firm.decide(ask({ count: 101 }))).toMatchObject({ effect: "deny", rules: [{ id: "never" }] });
    expect(firm.decide(ask({ count: 101 }, { approvedRules: ["big"] })).effect).toBe("deny");
  });

  test("is met by an approval of exactly the rules that fired", () => {
    const both = { count: 101, to: "a.example" };
    expect(policy.decide(ask(both))).toMatchObject({
      effect: "challenge",
      rules: [{ id: "big" }, { id: "foreign" }],
      approvers: ["cfo", "board", "compliance"],
    });
    expect(policy.decide(ask(both, { approvedRules: ["foreign", "big"] }))).toMatchObject({
      effect: "permit",
      rules: [{ id: "pay" }],
    });
    expect(policy.decide(ask({ count: 101 }, { approvedRules: ["big"] })).effect).toBe("permit");
  });

  test("is asked again, for all its rules, when the approval was for another set", () => {
    const both = { count: 101, to: "a.example" };
    for (const approvedRules of [["big"], ["foreign"], ["pay"], ["big", "foreign", "more"], []]) {
      expect(policy.decide(ask(both, { approvedRules })), approvedRules.join()).toMatchObject({
        effect: "challenge",
        rules: [{ id: "big" }, { id: "foreign" }],
      });
    }
    expect(policy.decide(ask({ count: 101 }, { approvedRules: ["big", "foreign"] })).effect).toBe("challenge");
  });

  test("does not accept an approval of a rule that asks for no approval", () => {
    const firm = load(`${PAY}@id("never") forbid (principal, action == Action::"pay", resource);`);
    expect(firm.decide(ask({}, { approvedRules: ["never"] })).effect).toBe("deny");
  });

  test("that stays forbidden although approved is a deny", () => {
    const stubborn = load(`${PAY}@id("s") @outcome("challenge") forbid (principal, action == Action::"pay", resource)
      unless { context.approved && principal.scope.contains("pay:large") };`);
    expect(stubborn.decide(ask())).toMatchObject({ effect: "deny", rules: [{ id: "s" }] });
    expect(stubborn.decide(ask({}, { scope: ["pay:large"] })).effect).toBe("challenge");
  });

  test("that errors once approved is a deny", () => {
    const broken = load(`${PAY}@id("s") @outcome("challenge") forbid (principal, action == Action::"pay", resource)
      unless { context.approved && context.arguments has any && context.arguments.any > 3 };`);
    expect(broken.decide(ask({ any: "x" }))).toMatchObject({ effect: "deny", rules: [{ id: "s" }] });
    expect(broken.decide(ask({ any: "x" })).errors).toHaveLength(1);
  });
});

describe("obligations", () => {
  test("obligations of all the permits that matched apply together, with the smallest cap", () => {
    const policy = load(`
      @id("a") @redact("field:iban name:email") @cap("5000") permit (principal, action, resource);
      @id("b") @redact("name:email /acct-\\\\d+/i") @cap("400") permit (principal, action == Action::"pay", resource);
      @id("c") @redact("name:secret") permit (principal in App::"other", action, resource);`);
    expect(policy.decide(ask()).obligations).toEqual([
      { kind: "redact", field: "iban" },
      { kind: "redact", name: "email" },
      { kind: "redact", pattern: "/acct-\\d+/i" },
      { kind: "cap", maxBytes: 400 },
    ]);
    expect(load(ALL).decide(ask()).obligations).toEqual([]);
  });
});
