// Rules about the people behind agents, and about the time of day.

import { expect, test } from "vitest";
import { parseCases, runCases } from "./cases.js";
import { loadPolicy } from "./load.js";
import { type Outlook, PolicyInvalid, type PolicyRequest, type PolicySet, type ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "pay",
    server: "bank",
    inputSchema: { type: "object", required: ["at"], properties: { at: { type: "string" } } },
  },
];
const EDITORS = 'permit (principal, action, resource) when { principal.groups.contains("editors") };';
const ALICE = 'permit (principal, action, resource) when { principal has user && principal.user == "alice" };';
const OFFICE_HOURS = `permit (principal, action, resource)
when { context.now.toTime() >= duration("9h") && context.now.toTime() < duration("17h") };`;

const load = (text: string): PolicySet => loadPolicy([{ file: "p.cedar", text }], TOOLS);

const ask = (more: Partial<PolicyRequest> = {}): PolicyRequest => ({
  app: "a",
  agent: "x",
  scope: [],
  action: "pay",
  resource: { type: "Tool", id: "pay" },
  arguments: { at: "noon" },
  transport: "http",
  ...more,
});

const effect = (text: string, more: Partial<PolicyRequest> = {}): string => load(text).decide(ask(more)).effect;

test.each<[string, Partial<PolicyRequest>, string]>([
  [EDITORS, { groups: ["editors", "staff"] }, "permit"],
  [EDITORS, { groups: ["staff"] }, "deny"],
  [EDITORS, {}, "deny"],
  [ALICE, { user: "alice" }, "permit"],
  [ALICE, { user: "bob" }, "deny"],
  [ALICE, {}, "deny"],
  [OFFICE_HOURS, { now: Date.UTC(2030, 0, 1, 9) }, "permit"],
  [OFFICE_HOURS, { now: Date.UTC(2030, 0, 1, 17) }, "deny"],
])("the rule %s decides about a caller with %o by %s", (text, more, expected) => {
  expect(effect(text, more)).toBe(expected);
});

test("a rule that reads the user without asking whether there is one is refused at load", () => {
  const text = 'permit (principal, action, resource) when { principal.user == "alice" };';
  expect(() => load(text)).toThrow(PolicyInvalid);
  expect(() => load(text)).toThrow(/user/);
});

test("a rule compares the time with a time, and nothing else", () => {
  const text = (right: string): string => `permit (principal, action, resource) when { context.now > ${right} };`;
  expect(() => load(text("7"))).toThrow(PolicyInvalid);
  expect(effect(text('datetime("2030-01-01")'), { now: Date.UTC(2030, 0, 2) })).toBe("permit");
});

test("a rule that reads a time which is not known denies the call, also where it is a forbid", () => {
  const forbid =
    'permit (principal, action, resource); forbid (principal, action, resource) when { context.now < datetime("2000-01-01") };';
  expect(effect(forbid, { now: Date.UTC(2030, 0, 1) })).toBe("permit");
  expect(load(forbid).decide(ask())).toMatchObject({
    effect: "deny",
    errors: [expect.stringContaining("the time of the request is not known")],
  });
});

test("a server that asks a client for something has no user, and the client that it asks has its own", () => {
  const policy = load(`@id("server") permit (principal is Server, action, resource) when { principal has user };
    @id("asked") permit (principal, action == Action::"elicitation/create", resource)
    when { resource has user && resource.user == "alice" && resource.groups.contains("editors") };`);
  const asks = ask({
    agent: "server:bank",
    action: "elicitation/create",
    arguments: {},
    serverRequest: { server: "bank", tool: "pay" },
  });
  const asked = { type: "Agent", id: "a/x", server: "bank", scope: [] } as const;
  const { rules } = policy.decide({ ...asks, resource: { ...asked, user: "alice", groups: ["editors"] } });
  expect(rules.map(({ id }) => id)).toEqual(["asked"]);
  expect(policy.decide({ ...asks, resource: { ...asked, user: "bob", groups: ["editors"] } }).effect).toBe("deny");
  expect(policy.decide({ ...asks, resource: asked }).effect).toBe("deny");
});

test("the user and the groups of a case about a server's request are those of the client that is asked", async () => {
  const policy = load(`@id("asked") permit (principal, action == Action::"elicitation/create", resource)
    when { resource.groups.contains("editors") && !(principal has user) && principal.groups.isEmpty() };`);
  const text =
    "- { method: elicitation/create, server: bank, user: ann, groups: [editors], expect: permit, rule: asked }";
  expect(runCases(policy, await parseCases("c.yaml", text)).map(({ message }) => message)).toEqual([""]);
});

test("the values of the user, the groups and the time are shown in an explanation", () => {
  const text = `permit (principal, action, resource)
    when { principal has user && principal.groups.contains("x") && context.now > datetime("2030-01-01") };`;
  const { rules } = load(text).explain(ask({ user: "alice", groups: ["x"], now: Date.UTC(2029, 0, 1, 9) }));
  expect(rules[0]?.values).toEqual([{ expression: "context.now", value: 'datetime("2029-01-01T09:00:00.000Z")' }]);
});

const OUTLOOKS: [string, object, Outlook][] = [
  [EDITORS, { groups: ["editors"] }, "possible"],
  [EDITORS, { groups: [] }, "never"],
  [ALICE, { user: "alice", groups: [] }, "possible"],
  [ALICE, { user: "bob", groups: [] }, "never"],
  [ALICE, { groups: [] }, "never"],
  // The people may be any where nothing is said of them, and the time is never known before the call.
  [EDITORS, {}, "possible"],
  [ALICE, {}, "possible"],
  [OFFICE_HOURS, { groups: [] }, "possible"],
];
test.each(OUTLOOKS)("the rule %s leaves a caller with %o the outlook %s", (text, people, expected) => {
  const resource = { type: "Tool", id: "pay" } as const;
  expect(load(text).outlook({ app: "a", agent: "x", scope: [], action: "pay", resource, ...people })).toBe(expected);
});

test("a case says who the user is, in which groups, and when the call comes", async () => {
  const policy = load(`@id("people") permit (principal, action, resource)
    when { principal has user && principal.user == "alice" && principal.groups.contains("editors")
      && context.now < datetime("2030-01-01T17:00:00Z") };`);
  const alice = "- { tool: pay, arguments: { at: a }, user: alice, groups: [editors], ";
  const text = `${alice} now: 2030-01-01T16:59:59Z, expect: permit, rule: people }
${alice} now: "2030-01-01T17:00:00Z", expect: deny }
- { tool: pay, arguments: { at: a }, user: bob, groups: [editors], now: 2030-01-01, expect: deny }
- { tool: pay, arguments: { at: a }, user: alice, now: 2030-01-01, expect: deny }`;
  const results = runCases(policy, await parseCases("c.yaml", text));
  expect(results.map(({ message }) => message)).toEqual(["", "", "", ""]);
  await expect(parseCases("c.yaml", `${alice} now: noon, expect: deny }`)).rejects.toThrow("now must be a time");
});
