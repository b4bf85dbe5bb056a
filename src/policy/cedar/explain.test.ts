import { expect, test } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { loadPolicy } from "./load.js";
import type { Explanation, PolicyRequest, ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "fs.read",
    server: "host",
    inputSchema: {
      type: "object",
      required: ["path"],
      properties: { path: { type: "string" }, limit: { type: "integer" }, any: {} },
    },
  },
  { name: "fs.write", server: "host", inputSchema: { type: "object", properties: {} } },
];

const TEXT = `// who may read what
@id("docs")
permit (
  principal in App::"blog",
  action == Action::"fs.read",
  resource
)
when {
  context.arguments.path like "/srv/*" &&
  (if context.arguments has limit then
     context.arguments.limit < 100
   else
     principal.scope.contains("wide"))
}
unless { context.arguments.path like "*.key" || context.arguments.path like "*/.*" };

@id("others") permit (principal in App::"other", action, resource);
@id("writes") permit (principal, action == Action::"fs.write", resource);
@id("sum") forbid (principal, action == Action::"fs.read", resource)
when { context.arguments has any &&
       context.arguments.any + 1 == 2 };
`;
const policy = loadPolicy([{ file: "etc/p.cedar", text: TEXT }], TOOLS);

function explain(args: JsonObject, more: Partial<PolicyRequest> = {}): Explanation {
  return policy.explain({
    app: "blog",
    agent: "a",
    scope: [],
    action: "fs.read",
    resource: { type: "Tool", id: "fs.read" },
    arguments: args,
    transport: "stdio",
    ...more,
  });
}

function docs(args: JsonObject, more: Partial<PolicyRequest> = {}): string {
  const rule = explain(args, more).rules.find((each) => each.id === "docs");
  return `${rule?.matched} ${rule?.decidedBy.part} ${rule?.decidedBy.line}:${rule?.decidedBy.column} ${rule?.decidedBy.text}`;
}

test("the smallest condition that made the difference is named, with its own line", () => {
  expect(docs({ path: "/etc/passwd" })).toBe('false when 9:3 context.arguments.path like "/srv/*"');
  expect(docs({ path: "/srv/a", limit: 100 })).toBe("false when 11:6 context.arguments.limit < 100");
  expect(docs({ path: "/srv/a" })).toBe('false when 13:6 principal.scope.contains("wide")');
  expect(docs({ path: "/srv/a.key", limit: 1 })).toBe('false unless 15:10 context.arguments.path like "*.key"');
  expect(docs({ path: "/srv/.a", limit: 1 })).toBe('false unless 15:49 context.arguments.path like "*/.*"');
  expect(docs({ path: "/srv/a", limit: 1 }, { app: "x" })).toBe('false principal 4:3 principal in App::"blog"');
  expect(docs({ path: "/srv/a", limit: 1 })).toMatch(/^true rule 2:1 @id\("docs"\)/);
});

test("every rule the action brings into play is listed, and no other", () => {
  const { rules, decision } = explain({ path: "/srv/a", limit: 1 });
  expect(rules.map((rule) => `${rule.id} ${rule.effect} ${rule.matched} ${rule.file}:${rule.line}`)).toEqual([
    "docs permit true etc/p.cedar:2",
    "others permit false etc/p.cedar:17",
    "sum forbid false etc/p.cedar:19",
  ]);
  expect(decision).toMatchObject({ effect: "permit", rules: [{ id: "docs", line: 2 }] });
});

test("an error is placed at the part that failed", () => {
  const { rules, decision } = explain({ path: "/srv/a", limit: 1, any: "x" });
  const sum = rules.find((rule) => rule.id === "sum");
  expect(sum).toMatchObject({
    matched: false,
    error: "expected a long, found a string",
    decidedBy: { part: "when", line: 21, column: 8, text: "context.arguments.any + 1 == 2" },
  });
  expect(decision.effect).toBe("deny");
});

test("a matching rule with one clause names what made that clause true", () => {
  const { rules } = explain({ path: "/srv/a", any: 1 });
  expect(rules.find((rule) => rule.id === "sum")?.decidedBy).toMatchObject({ part: "when", line: 20 });
  const either = loadPolicy(
    [
      {
        file: "p.cedar",
        text: 'permit (principal, action, resource)\nwhen { principal.app == "x" ||\n principal.app == "blog" };',
      },
    ],
    TOOLS,
  );
  const request = { app: "blog", agent: "a", scope: [], arguments: {}, transport: "" };
  const resource = { type: "Tool", id: "fs.read" } as const;
  expect(either.explain({ ...request, action: "fs.read", resource }).rules[0]?.decidedBy).toEqual({
    part: "when",
    text: 'principal.app == "blog"',
    line: 3,
    column: 2,
  });
});

test("under a negation it is the part inside that made the difference", () => {
  const text = `permit (principal, action == Action::"fs.read", resource) when {
    !(principal.app == "x" || context.arguments.path like "*.key") };`;
  const request = { app: "blog", agent: "a", scope: [], arguments: { path: "a.key" }, transport: "" };
  const resource = { type: "Tool", id: "fs.read" } as const;
  const set = loadPolicy([{ file: "p.cedar", text }], TOOLS);
  expect(set.explain({ ...request, action: "fs.read", resource }).rules[0]).toMatchObject({
    matched: false,
    decidedBy: { part: "when", line: 2, text: 'context.arguments.path like "*.key"' },
  });
});

test("a request that cannot be decided is explained as such", () => {
  expect(explain({ path: { __entity: 1 } })).toMatchObject({ decision: { effect: "deny" }, rules: [] });
});

function values(id: string, args: JsonObject, more: Partial<PolicyRequest> = {}): string[] {
  const rule = explain(args, more).rules.find((each) => each.id === id);
  return (rule?.values ?? []).map(({ expression, value, problem }) => `${expression} = ${value ?? problem}`);
}

test("the values that made a condition true or false are shown", () => {
  expect(values("docs", { path: "/etc/passwd" })).toEqual(['context.arguments.path = "/etc/passwd"']);
  expect(values("docs", { path: "/srv/a", limit: 100 })).toEqual(["context.arguments.limit = 100"]);
  expect(values("docs", { path: "/srv/a" }, { scope: ["narrow"] })).toEqual(['principal.scope = ["narrow"]']);
  expect(values("docs", { path: "/srv/a", limit: 1 }, { app: "x" })).toEqual(['principal = Agent::"x/a"']);
});

test("a rule that matches by several clauses shows the values of all of them, each once", () => {
  expect(values("docs", { path: "/srv/a", limit: 1 })).toEqual([
    'context.arguments.path = "/srv/a"',
    "context.arguments.limit = 1",
  ]);
});

test("an attribute that is missing is named, and a long value is cut", () => {
  expect(values("docs", {})).toEqual(["context.arguments.path = argument path is missing"]);
  expect(values("sum", { path: "/srv/a" })).toEqual(["context.arguments.any = argument any is missing"]);
  const [long = ""] = values("docs", { path: "x".repeat(5_000) });
  expect(long.length).toBeLessThan(260);
  expect(long.endsWith("…")).toBe(true);
});
