import { expect, test } from "vitest";
import { parseCases, runCases } from "../cedar/cases.js";
import { loadPolicy } from "../cedar/load.js";

const TOOLS = ["look", "write"].map((name) => ({
  name,
  server: "notes",
  inputSchema: { type: "object", properties: { title: { type: "string" } } },
}));
const POLICY = `
permit (principal, action, resource);
@id("look-first") forbid (principal, action == Action::"write", resource)
unless temporal { formerly within 1h Action::"look"::permitted{ principal: principal } };
@id("twice") forbid (principal, action == Action::"write", resource)
when temporal { count_within(10m, Action::"write"::permitted{ arguments.title: context.arguments.title }) >= 2 };
`;

test("policy test gives a call the past that its case describes", async () => {
  const set = loadPolicy([{ file: "rules.cedar", text: POLICY }], TOOLS);
  const cases = await parseCases(
    "cases.yaml",
    `cases:
  - { tool: write, arguments: { title: a }, expect: deny, rule: look-first }
  - { tool: write, arguments: { title: a }, expect: permit, past: [{ tool: look, ago: 5m }] }
  - { tool: write, arguments: { title: a }, expect: deny, past: [{ tool: look, ago: 2h }] }
  - { tool: write, arguments: { title: a }, expect: deny, past: [{ tool: look, ago: 5m, event: denied }] }
  - { tool: write, arguments: { title: a }, expect: deny, past: [{ tool: look, ago: 5m, agent: other }] }
  - tool: write
    arguments: { title: a }
    past:
      - { tool: write, arguments: { title: a }, ago: 1m }
      - { tool: look, ago: 30m }
      - { tool: write, arguments: { title: a }, ago: 9m }
    expect: deny
    rule: twice
`,
  );
  expect(runCases(set, cases).filter(({ ok }) => !ok)).toEqual([]);
});

test("policy test names what is wrong with the past of a case", async () => {
  const wrong = (past: string) =>
    parseCases("cases.yaml", `cases:\n  - { tool: write, expect: deny, past: ${past} }`).then(
      () => "accepted",
      (error: Error) => error.message,
    );
  expect(await wrong("[{ tool: look }]")).toContain("cases.yaml:2:5: a past call needs ago");
  expect(await wrong("[{ tool: look, ago: 5m, tol: x }]")).toContain("a past call has no tol");
  expect(await wrong("yes")).toContain("past must be a list of calls");
});
