import { describe, expect, it } from "vitest";
import { createGate, Halts, type HaltTarget, makeIntent, type PolicyInput } from "./index.js";

const target = {
  type: "Tool",
  name: "mail.send",
  action: "mail.send",
  binding: "stdio:mail",
  server: "mail",
  definitionHash: "0",
  tags: [],
  readOnly: false,
  noGuardrailRequired: true,
  builtin: false,
} as const;

const input = (more: Partial<PolicyInput> = {}): PolicyInput => ({
  principal: { app: "blog", agent: "writer", scope: [], via: "key" },
  method: "tools/call",
  target,
  arguments: {},
  transport: "http",
  ...more,
});

const inForce = (...targets: HaltTarget[]): Halts => {
  const halts = new Halts();
  halts.set(
    "store",
    targets.map((each) => ({ target: each, by: "cli:anna", reason: "leak", at: 0, source: "store" })),
  );
  return halts;
};

describe("a halt", () => {
  const covering: HaltTarget[] = [
    {},
    { app: "blog" },
    { agent: "writer" },
    { server: "mail" },
    { tool: "mail.send" },
    { tool: "mail.*" },
    { app: "blog", agent: "writer", server: "mail", tool: "*" },
  ];
  it.each(covering)("of %j covers a call that fits every field", (halt) => {
    expect(inForce(halt).check(input())).toMatchObject({ effect: "deny", rules: [{ id: "halt" }] });
  });

  const others: HaltTarget[] = [{ app: "shop" }, { agent: "reader" }, { server: "files" }, { tool: "mail.read" }];
  it.each([...others, { app: "blog", tool: "mail.read" }])("of %j does not cover another call", (halt) => {
    expect(inForce(halt).check(input())).toBeUndefined();
  });

  it("of an agent covers the agents that it delegated to, and the holder of a delegated credential", () => {
    const principal = { app: "blog", agent: "helper", scope: [], via: "delegation" } as const;
    const delegation = { agents: ["writer", "helper"] } as unknown as NonNullable<
      PolicyInput["principal"]["delegation"]
    >;
    const halts = inForce({ agent: "writer" });
    expect(halts.check(input({ principal }))).toBeUndefined();
    expect(halts.check(input({ principal: { ...principal, holder: "writer" } }))).toMatchObject({ effect: "deny" });
    expect(halts.check(input({ principal: { ...principal, delegation } }))).toMatchObject({ effect: "deny" });
  });

  it("covers the requests of a server to the client of a halted agent", () => {
    const asked = { ...target, type: "Client" as never, name: "blog/writer", action: "sampling/createMessage" };
    const serverRequest = { tool: "mail.send", scope: [], permittedUnlessForbidden: false };
    const principal = { app: "blog", agent: "server:mail", scope: [], via: "server" };
    const request = input({ principal, target: { ...asked, serverRequest } });
    expect(inForce({ agent: "writer" }).check(request)).toMatchObject({ effect: "deny" });
    expect(inForce({ agent: "reader" }).check(request)).toBeUndefined();
  });

  it("says by whom, since when and how it is resumed", () => {
    const denial = inForce({ app: "blog", tool: "mail.*" }).check(input());
    expect(denial?.reason).toBe("halted by cli:anna since 1970-01-01T00:00:00.000Z: leak; it did not run");
    expect(denial?.suggestions?.[0]).toContain("`portcullis resume --app blog --tool mail.*`");
  });

  it("leaves lists and other answers of the gateway itself alone", () => {
    expect(inForce({}).check(input({ target: { ...target, builtin: true } }))).toBeUndefined();
  });

  it("is assumed while it is not known what is halted", () => {
    let reason: string | undefined = "the store has not been read for 61 s";
    const halts = new Halts(() => reason);
    expect(halts.check(input())).toMatchObject({ effect: "deny", type: "Unavailable" });
    reason = undefined;
    expect(halts.check(input())).toBeUndefined();
  });

  it.each([{}, { app: "a" }, { agent: "x y%", tool: "a=b*" }, { app: "a", agent: "b", server: "c", tool: "d" }])(
    "has one name, from which %j is read again",
    (halt: HaltTarget) => {
      expect(Halts.parse(Halts.nameOf(halt))).toEqual(halt);
    },
  );

  it.each(["", "app", "app=", "place=x", "app=a app=b", "app=%zz"])("has no name like %j", (text) => {
    expect(Halts.parse(text)).toBeUndefined();
  });
});

describe("the gate", () => {
  const intentOf = ({ principal, method, target: about, arguments: args }: PolicyInput) =>
    makeIntent({ principal, method, target: about, arguments: args, forwarded: {} });

  it("denies a halted call without a permit, also where policy is only observed [M8]", async () => {
    for (const observe of [false, true]) {
      const gate = createGate({ policy: "permit (principal, action, resource);", observe, halts: inForce({}) });
      const decision = await gate.decide(input(), intentOf(input()));
      expect(decision).toMatchObject({ effect: "deny", permit: undefined, rules: [{ id: "halt" }] });
    }
  });

  it("denies a call that was halted while its guardrail ran", async () => {
    const halts = new Halts();
    const guardrail = {
      id: "slow",
      agent: "*",
      tool: "*",
      callback: async () => {
        halts.set("store", [{ target: {}, by: "cli:anna", reason: "", at: 0, source: "store" }]);
        return undefined;
      },
    };
    const policy = "permit (principal, action, resource);";
    const tools = [{ name: "mail.send", server: "mail", inputSchema: { type: "object" }, tags: [], readOnly: false }];
    const gate = createGate({ policy, halts, tools, guardrails: [guardrail] });
    const decision = await gate.decide(input(), intentOf(input()));
    expect(decision).toMatchObject({ effect: "deny", permit: undefined, rules: [{ id: "halt" }] });
  });
});
