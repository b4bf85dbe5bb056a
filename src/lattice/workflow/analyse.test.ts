import { describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import { checkWorkflows, loadChecker } from "../fixtures/check-workflows.js";
import { LatticeError } from "../errors.js";
import { analyse } from "./analyse.js";
import type { Delegation } from "./model.js";
import { parseWorkflow } from "./parse.js";

const validator = ajvValidator();
const SERVERS = `
servers:
  files:
    tools:
      - name: read
        inputSchema: { type: object, properties: { path: { type: string } }, required: [path], additionalProperties: false }
      - name: write
  net:
    tools: [{ name: send }]
`;

function read(text: string) {
  return analyse(parseWorkflow(SERVERS + text), { validator });
}

describe("workflow analysis", () => {
  it("equals brute force on generated workflows, circles and narrowing included, before and after changes", async () => {
    const done = checkWorkflows(60, await loadChecker());
    expect(done.violations).toBeGreaterThan(60);
  });

  it("grants nobody what the delegating agent does not hold", () => {
    const analysis = read(`
agents:
  boss: { servers: [net] }
  worker: { servers: [files, net] }
delegations: [{ from: boss, to: worker }]
`);
    expect([...analysis.scope("worker").keys()]).toEqual(["net.send"]);
  });

  it("joins what several parents delegate", () => {
    const analysis = read(`
agents:
  a: { servers: [files] }
  b: { servers: [net] }
  both: { servers: [files, net] }
delegations: [{ from: a, to: both, tools: [files.read] }, { from: b, to: both }]
`);
    expect([...analysis.scope("both").keys()]).toEqual(["files.read", "net.send"]);
  });

  it("lets a circle of delegations grant nothing by itself", () => {
    const analysis = read(`
agents:
  root: { servers: [net] }
  x: { servers: [files] }
  y: { servers: [files] }
delegations: [{ from: x, to: y }, { from: y, to: x }]
`);
    expect([analysis.scope("x").size, analysis.scope("y").size]).toEqual([0, 0]);
  });

  it("ends a witness in an argument that arrives and is not allowed", () => {
    const analysis = read(`
agents:
  boss: { servers: [files] }
  middle: { servers: [files] }
  worker:
    servers: [files]
    allow: { files.read: { properties: { path: { pattern: "^/tmp/" } } } }
delegations:
  - { from: boss, to: middle, tools: [files.read], arguments: { files.read: { properties: { path: { pattern: "^/(tmp|etc)/" } } } } }
  - { from: middle, to: worker }
`);
    const [violation, ...others] = analysis.violations();
    expect(others).toEqual([]);
    expect(violation).toMatchObject({
      agent: "worker",
      grant: { agents: ["boss", "middle", "worker"], delegations: [0, 1], isProved: true },
    });
    const argument = violation?.kind === "allow" ? violation.grant.argument?.value : undefined;
    expect(argument).toEqual({ path: "/etc/" });
  });

  it("takes what it cannot decide as a violation, and says that it is not proved", () => {
    const analysis = read(`
agents:
  boss:
    servers: [files]
    tools: [files.read]
    allow: { files.read: { properties: { path: { pattern: "^(.*)\\\\1?$" } } } }
`);
    expect(analysis.violations()).toMatchObject([{ agent: "boss", grant: { isProved: false } }]);
  });

  it("does not report a capability whose arguments have all been taken away", () => {
    const analysis = read(`
agents:
  boss: { servers: [files] }
  worker: { servers: [files], allow: [files.write] }
delegations:
  - { from: boss, to: worker, arguments: { files.read: { required: [nothing] } } }
`);
    expect(analysis.violations()).toEqual([]);
    expect([...analysis.scope("worker").keys()]).toEqual(["files.write"]);
  });

  it("follows more narrowings of one tool than it keeps lanes for in advance", () => {
    const agents = Array.from({ length: 9 }, (_, i) => `  a${i}: { servers: [files] }`).join("\n");
    const steps = Array.from(
      { length: 8 },
      (_, i) =>
        `  - { from: a${i}, to: a${i + 1}, arguments: { files.read: { properties: { path: { not: { const: "${i}" } } } } } }`,
    ).join("\n");
    const analysis = read(
      `agents:\n${agents}\n  last: { servers: [files], allow: [files.write] }\ndelegations:\n${steps}\n  - { from: a8, to: last }\n`,
    );
    expect(analysis.simplified).toEqual([]);
    expect(analysis.violations()).toMatchObject([{ agent: "last", grant: { isProved: true } }]);
    expect(analysis.scope("last").get("files.read")?.arguments).toMatchObject({ is: "all" });
    const narrower: Delegation = {
      from: "a0",
      to: "last",
      arguments: new Map([["files.read", { is: "schema", schema: { maxProperties: 1 } }]]),
    };
    const { appeared, vanished } = analysis.addDelegation(narrower);
    expect([appeared, vanished]).toEqual([[], []]);
    expect(analysis.violations()).toMatchObject([{ grant: { agents: ["a0", "last"] } }]);
  });

  it("refuses to change what is not there", () => {
    const analysis = read("agents:\n  boss: { servers: [files] }\n");
    expect(() => analysis.removeDelegation(0)).toThrow(LatticeError);
    expect(() => analysis.addDelegation({ from: "boss", to: "ghost" })).toThrow("there is no agent `ghost`");
    const broken = {
      capabilities: new Map(),
      agents: [{ name: "a", holds: ["x.y"], isRoot: true }],
      delegations: [],
      rules: [],
    };
    expect(() => analyse(broken)).toThrow("`a` holds `x.y`, which nobody offers");
    expect(() => analysis.scope("ghost")).toThrow("there is no agent `ghost`");
  });
});
