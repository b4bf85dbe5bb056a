import { expect, test } from "vitest";
import { diffPolicies, parseCases, runCases } from "./cases.js";
import { loadPolicy } from "./load.js";
import { PolicyInvalid, type PolicySet, type ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "fs.read",
    server: "host",
    inputSchema: { type: "object", required: ["path"], properties: { path: { type: "string" } } },
  },
];

function load(text: string): PolicySet {
  return loadPolicy([{ file: "p.cedar", text }], TOOLS);
}

const POLICY = `@id("docs")
permit (principal in App::"blog", action == Action::"fs.read", resource)
when { context.arguments.path like "/srv/*" };
@id("resources") permit (principal, action == Action::"resources/read", resource in Server::"host");
@id("ask") @outcome("challenge") forbid (principal, action == Action::"fs.read", resource)
when { context.arguments.path like "*secret*" } unless { context.approved };`;

const CASES = `
# what the blog may read
cases:
  - name: docs can be read
    app: blog
    agent: writer
    tool: fs.read
    arguments: { path: /srv/a }
    expect: permit
    rule: docs
  - app: blog
    tool: fs.read
    arguments: { path: /etc/passwd }
    expect: permit
  - app: blog
    tool: fs.read
    arguments: { path: /srv/secret }
    expect: challenge
  - app: blog
    tool: fs.read
    arguments: { path: /srv/secret }
    approved: [ask]
    expect: permit
    rule: ask
  - method: resources/read
    resource: { id: "file:///a", server: host }
    expect: permit
  - method: logging/setLevel
    expect: deny
`;

async function problem(text: string): Promise<string> {
  try {
    await parseCases("cases.yaml", text);
    return "";
  } catch (error) {
    if (error instanceof PolicyInvalid) return error.message;
    throw error;
  }
}

test("cases are run, and a mismatch says what was expected, what came, and why", async () => {
  const results = runCases(load(POLICY), await parseCases("cases.yaml", CASES));
  expect(results.map((result) => result.ok)).toEqual([true, false, true, false, true, true]);
  expect(results[1]?.case).toMatchObject({ name: "case 2", file: "cases.yaml", line: 11 });
  expect(results[1]?.message).toBe(
    [
      "case 2: expected permit, got deny by no rule: no policy permits this",
      '  docs (permit) did not match because of: context.arguments.path like "/srv/*" (p.cedar:3)',
      '  ask (forbid) did not match because of: context.arguments.path like "*secret*" (p.cedar:6)',
    ].join("\n"),
  );
  expect(results[3]?.message).toBe("case 4: permit as expected, but by docs (p.cedar:1) instead of ask");
});

test("JSON is YAML too, and a bare list will do", async () => {
  const [only] = await parseCases(
    "c.json",
    JSON.stringify([{ tool: "fs.read", arguments: { path: "/" }, expect: "deny" }]),
  );
  expect(only?.request).toMatchObject({
    app: "local",
    agent: "local",
    scope: [],
    transport: "stdio",
    action: "fs.read",
  });
});

test.each([
  ["cases: 3", "has no cases"],
  ["- 5", "is not a case"],
  ["- tool: a\n  expct: permit", "cases.yaml:2:3: a case has no expct (did you mean expect?)"],
  ["- tool: a\n  expect: allow", "expect must be permit, deny or challenge"],
  ["- expect: permit", "about one tool or one method"],
  ["- tool: a\n  method: prompts/get\n  expect: permit", "about one tool or one method"],
  ["- method: tools/list\n  expect: permit", "about one tool or one method"],
  ["- method: prompts/get\n  expect: permit", "prompts/get needs a resource"],
  ["- tool: a\n  arguments: [1]\n  expect: permit", "arguments must be an object"],
  ["- tool: a\n  scope: x\n  expect: permit", "scope must be a list of texts"],
  ["- tool: a\n  tool: b\n  expect: permit", "cases.yaml:2:3: Map keys must be unique"],
  ["- {", "cases.yaml:"],
])("%j is refused", async (text, message) => {
  expect(await problem(text)).toContain(message);
});

test("a file of aliases that would grow without end is refused", async () => {
  const levels = Array.from({ length: 9 }, (_, i) => `l${i + 1}: &l${i + 1} [${Array(9).fill(`*l${i}`).join(",")}]`);
  const bomb = `- tool: a\n  expect: deny\n  arguments:\n    l0: &l0 [x]\n${levels.map((line) => `    ${line}`).join("\n")}`;
  await expect(parseCases("bomb.yaml", bomb)).rejects.toThrow();
});

test("a comparison names the rules and the decisions that changed", async () => {
  const before = load(POLICY);
  const after = load(
    `@id("docs") permit (principal in App::"blog", action == Action::"fs.read", resource) when { context.arguments.path like "/srv/docs/*" };
     @id("ask") @outcome("challenge") @approvers("ops") forbid (principal, action == Action::"fs.read", resource)
     when { context.arguments.path like "*secret*" } unless { context.approved };
     @id("new") permit (principal, action == Action::"logging/setLevel", resource);`,
  );
  const requests = (await parseCases("cases.yaml", CASES)).map((each) => each.request);
  const diff = diffPolicies(before, after, requests);
  expect(diff.added).toEqual([{ id: "new", file: "p.cedar", line: 4 }]);
  expect(diff.removed).toEqual([{ id: "resources", file: "p.cedar", line: 4 }]);
  expect(diff.changed.map((change) => change.id)).toEqual(["docs", "ask"]);
  expect(diff.compared).toBe(6);
  expect(diff.decisions.map(({ before: was, after: is }) => `${was.effect} > ${is.effect}`)).toEqual([
    "permit > deny",
    "challenge > deny",
    "permit > deny",
    "permit > deny",
    "deny > permit",
  ]);
  const same = diffPolicies(before, load(`// moved\n${POLICY}`), requests);
  expect(same).toEqual({ added: [], removed: [], changed: [], decisions: [], compared: 6 });
});
