import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import { loadChecker } from "../fixtures/check-workflows.js";
import { toJson } from "../report/text.js";
import { analyse } from "./analyse.js";
import { parseWorkflow } from "./parse.js";

const FILE = {
  servers: {
    s: {
      tools: [
        { name: "read", inputSchema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } },
        { name: "send" },
      ],
    },
  },
  agents: {
    boss: { servers: ["s"] },
    middle: { servers: ["s"] },
    worker: { servers: ["s"], allow: { "s.read": { properties: { n: { minimum: 5 } } } } },
  },
  delegations: [
    { from: "boss", to: "middle" },
    { from: "middle", to: "worker", tools: ["s.read"], arguments: { "s.read": { properties: { n: { maximum: 9 } } } } },
  ],
  rules: [{ name: "apart", never: ["s.read", "s.send"], except: ["boss"] }],
};
const workflow = parseWorkflow(JSON.stringify(FILE));
const violations = analyse(workflow, { validator: ajvValidator() }).violations();
const directory = mkdtempSync(join(tmpdir(), "witness-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** The report with one thing changed. */
function tampered(change: (report: Report) => void): Report {
  const report = JSON.parse(toJson(workflow, violations)) as Report;
  change(report);
  return report;
}
type Grant = { capability: string; agents: string[]; delegations: number[]; argument: { value: unknown } };
type Report = {
  violations: [
    { agent: string; grant: Grant },
    { agent: string; terms: { agents: string[]; delegations: number[]; grant: Grant }[] },
  ];
};

describe("the stand-alone checker", () => {
  it("accepts what the analysis found", async () => {
    const check = await loadChecker();
    expect(violations.map(({ kind, agent }) => `${kind} ${agent}`)).toEqual(["allow worker", "rule middle"]);
    expect(
      check(
        FILE,
        tampered(() => {}),
      ),
    ).toEqual([]);
  });

  it("knows rules without a name, and that every entry for a capability counts", async () => {
    const check = await loadChecker();
    const entries = { "s.read": { properties: { n: { maximum: 9 } } }, "*": true };
    const file = {
      ...FILE,
      agents: {
        ...FILE.agents,
        middle: { servers: ["s"], allow: { "s.*": true, "s.read": { properties: { n: { minimum: 5 } } } } },
      },
      delegations: [
        { from: "boss", to: "middle", arguments: entries },
        { from: "middle", to: "worker" },
      ],
      rules: [
        { never: ["s.send"], except: ["boss"] },
        { never: ["s.read"], except: ["boss"] },
      ],
    };
    const read = parseWorkflow(JSON.stringify(file));
    const found = analyse(read, { validator: ajvValidator() }).violations();
    expect(found.map((each) => (each.kind === "rule" ? each.rule : each.agent))).toEqual([
      "middle",
      "worker",
      "worker",
      "rule 1",
      "rule 1",
      "rule 2",
      "rule 2",
    ]);
    const report = JSON.parse(toJson(read, found)) as Report;
    expect(check(file, report)).toEqual([]);
    report.violations[0].grant.argument.value = { n: 10 };
    expect(check(file, report).join("\n")).toMatch(/delegation 0 does not pass these arguments/);
    report.violations[0].grant.argument.value = { n: 5 };
    expect(check(file, report).join("\n")).toMatch(/the allow list permits it/);
  });

  it.each<[string, (report: Report) => void, RegExp]>([
    [
      "an argument that the allow list permits",
      ({ violations: [v] }) => (v.grant.argument.value = { n: 7 }),
      /the allow list permits it/,
    ],
    [
      "an argument that a delegation holds back",
      ({ violations: [v] }) => (v.grant.argument.value = { n: 10 }),
      /does not pass these arguments/,
    ],
    [
      "an argument that the tool does not take",
      ({ violations: [v] }) => (v.grant.argument.value = {}),
      /does not take/,
    ],
    [
      "a tool that a delegation does not pass",
      ({ violations: [v] }) => (v.grant.capability = "s.send"),
      /does not pass s.send/,
    ],
    [
      "a shortcut",
      ({ violations: [v] }) => {
        v.grant.agents = ["boss", "worker"];
        v.grant.delegations = [0];
      },
      /does not lead from boss to worker/,
    ],
    [
      "a start without authority",
      ({ violations: [v] }) => {
        v.grant.agents = ["middle", "worker"];
        v.grant.delegations = [1];
      },
      /middle has no authority of its own/,
    ],
    ["another agent", ({ violations: [v] }) => (v.agent = "middle"), /the path ends at another node/],
    ["an agent that the rule excepts", ({ violations: [, v] }) => (v.agent = "boss"), /not about this agent/],
    [
      "a capability that is not the rule's",
      ({ violations: [, v] }) => ((v.terms[1] as { grant: Grant }).grant.capability = "s.read"),
      /s.read is not s.send/,
    ],
  ])("refuses %s", async (_, change, message) => {
    const check = await loadChecker();
    expect(check(FILE, tampered(change)).join("\n")).toMatch(message);
  });

  it("runs from the command line and fails loudly", () => {
    const script = join(import.meta.dirname, "../../../examples/check-witness.mjs");
    const path = (name: string, value: unknown): string => {
      writeFileSync(join(directory, name), JSON.stringify(value));
      return join(directory, name);
    };
    const file = path("workflow.yaml", FILE);
    const good = path(
      "good.json",
      tampered(() => {}),
    );
    const bad = path(
      "bad.json",
      tampered(({ violations: [v] }) => (v.grant.argument.value = { n: 7 })),
    );
    expect(execFileSync(process.execPath, [script, file, good], { encoding: "utf8" })).toBe(
      "2 witnesses checked, 0 problems\n",
    );
    expect(() => execFileSync(process.execPath, [script, file, bad], { encoding: "utf8", stdio: "pipe" })).toThrow(
      /the allow list permits it/,
    );
  });
});
