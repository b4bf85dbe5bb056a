import { describe, expect, it } from "vitest";
import { LatticeError } from "../errors.js";
import { ajvValidator } from "../fixtures/ajv.js";
import { checkNarrowings, checkWorkflows, loadChecker } from "../fixtures/check-workflows.js";
import { tell } from "../report/picture.js";
import { toJson, toSarif } from "../report/text.js";
import { analyse } from "./analyse.js";
import type { Delegation, Violation } from "./model.js";
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

/** Ten times a choice between two narrowings: 1,024 ways, each of them within the allow list of `end`. */
function tooManyWays() {
  const choices = Array.from({ length: 10 }, (_, i) => i);
  const limit = (i: number, value: string) => ({ "s.x": { properties: { [`p${i}`]: { const: value } } } });
  const either = choices.map((i) => [`p${i}`, { enum: ["a", "b"] }]);
  const agent = { servers: ["s"] };
  const file = {
    servers: { s: { tools: [{ name: "x", inputSchema: { type: "object", required: choices.map((i) => `p${i}`) } }] } },
    agents: {
      ...Object.fromEntries(choices.flatMap((i) => [`g${i}`, `a${i}`, `b${i}`].map((name) => [name, agent]))),
      g10: agent,
      end: { ...agent, allow: { "s.x": { properties: Object.fromEntries(either) } } },
      aside: { ...agent, allow: limit(0, "z") },
    },
    delegations: [
      ...choices.flatMap((i) => [
        { from: `g${i}`, to: `a${i}`, arguments: limit(i, "a") },
        { from: `g${i}`, to: `b${i}`, arguments: limit(i, "b") },
        { from: `a${i}`, to: `g${i + 1}` },
        { from: `b${i}`, to: `g${i + 1}` },
      ]),
      { from: "g10", to: "end" },
      { from: "g0", to: "aside", arguments: limit(0, "z") },
    ],
  };
  const workflow = parseWorkflow(JSON.stringify(file));
  const analysis = analyse(workflow, { validator });
  return { workflow, violations: analysis.violations(), simplified: analysis.simplified };
}

describe("workflow analysis", () => {
  it("equals brute force on generated workflows, circles and narrowing included, before and after changes [L5]", async () => {
    const done = checkWorkflows(60, await loadChecker());
    expect(done.violations).toBeGreaterThan(60);
  });

  it("tells the truth about up to sixty narrowings of one tool, and every proof stands before the checker [L5]", async () => {
    const done = checkNarrowings(4, await loadChecker());
    expect(done.exact).toBe(4);
    expect(done.proved).toBeGreaterThan(4);
  });

  it("workflow analysis does not combine the narrowings of agents that have nothing to do with each other", () => {
    const own = (i: number): string => `{ files.read: { properties: { path: { pattern: "^w${i}/" } } } }`;
    const each = (line: (i: number) => string): string => Array.from({ length: 70 }, (_, i) => line(i)).join("\n");
    const analysis = read(`
agents:
  boss: { servers: [files] }
${each((i) => `  w${i}: { servers: [files], tools: [files.read], allow: ${own(i)} }`)}
delegations:
${each((i) => `  - { from: boss, to: w${i}, arguments: ${own(i)} }`)}
`);
    expect(analysis.simplified).toEqual([]);
    expect(analysis.violations()).toEqual([]);
  });

  it("knows that a way around every narrowing makes their combinations no matter", () => {
    const layers = (line: (i: number) => string): string => Array.from({ length: 40 }, (_, i) => line(i)).join("\n");
    const only = (title: string): string => `{ files.read: { properties: { path: { const: ${title} } } } }`;
    const analysis = read(`
agents:
  g0: { servers: [files] }
  z: { servers: [files], tools: [files.read], allow: ${only("zz")} }
${layers((i) => `  g${i + 1}: { servers: [files] }\n  m${i}: { servers: [files] }`)}
delegations:
  - { from: g0, to: z, arguments: ${only("zz")} }
${layers((i) => `  - { from: g${i}, to: g${i + 1} }\n  - { from: g${i}, to: m${i}, arguments: ${only(`v${i}`)} }\n  - { from: m${i}, to: g${i + 1} }`)}
`);
    expect(analysis.simplified).toEqual([]);
    expect(analysis.violations()).toEqual([]);
    expect(analysis.scope("g40").get("files.read")?.arguments).toMatchObject({ is: "schema" });
  });

  it("proves nothing by ways that it does not tell apart, invents no argument for them, and says so [L5]", () => {
    const { workflow, violations, simplified } = tooManyWays();
    expect(simplified).toEqual(["s.x"]);
    expect(violations).toEqual([
      {
        kind: "allow",
        agent: "end",
        isNamed: true,
        grant: expect.objectContaining({
          capability: "s.x",
          isProved: false,
          why: expect.stringContaining("not all told apart"),
        }),
      },
    ]);
    expect(violations[0]?.kind === "allow" && "argument" in violations[0].grant).toBe(false);
    const said = [
      tell(violations[0] as Violation),
      toJson(workflow, violations),
      toSarif(workflow, violations, { uri: "w.yaml" }),
    ];
    expect(JSON.parse(said[2] as string)).toMatchObject({ runs: [{ results: [{ properties: { isProved: false } }] }] });
    for (const text of said) expect(text).toContain("not proved: so many ways narrow these arguments differently");
  });

  it("grants no agent a capability that the delegating agent does not hold", () => {
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

  it("ends a witness in an argument that arrives and is not allowed [L5]", () => {
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
    expect(() => analyse(broken)).toThrow("`a` holds `x.y`, which no server offers");
    expect(() => analysis.scope("ghost")).toThrow("there is no agent `ghost`");
  });
});
