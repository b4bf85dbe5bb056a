import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LatticeError } from "../errors.js";
import { workflowFile } from "../fixtures/workflows.js";
import { jsonParts } from "./document.js";
import { parseWorkflow } from "./parse.js";

const TOOLS = `
servers:
  files:
    tools:
      - name: read
        inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
      - name: write
  net:
    tools: [{ name: send }]
`;

function problem(text: string): LatticeError {
  try {
    parseWorkflow(text);
  } catch (error) {
    if (error instanceof LatticeError) return error;
    throw error;
  }
  throw new Error("no problem found");
}

describe("a workflow file", () => {
  it("a workflow file is read with names expanded, roots settled and lines kept", () => {
    const workflow = parseWorkflow(`${TOOLS}
labels:
  secret: [files.*]
agents:
  boss: { servers: [files, net] }
  reader:
    servers: [files]
    allow: { files.read: { properties: { path: { pattern: "^/tmp/" } } } }
delegations:
  - { from: boss, to: reader, tools: [secret] }
rules:
  - { name: no leak, never: [secret, net.send], except: [boss] }
`);
    expect([...workflow.capabilities.keys()]).toEqual(["files.read", "files.write", "net.send"]);
    expect(workflow.agents.map(({ name, isRoot, line }) => [name, isRoot, line])).toEqual([
      ["boss", true, 14],
      ["reader", false, 15],
    ]);
    expect(workflow.delegations).toMatchObject([{ only: ["files.read", "files.write"], line: 19 }]);
    expect(workflow.rules).toMatchObject([
      {
        name: "no leak",
        throughOthers: true,
        never: [{ name: "secret" }, { name: "net.send", capabilities: ["net.send"] }],
      },
    ]);
  });

  it("accepts JSON, and manifests that are passed separately", () => {
    const text = JSON.stringify({ servers: { s: { manifest: "./s.json" } }, agents: { a: { servers: ["s"] } } });
    const workflow = parseWorkflow(text, { manifest: (path) => ({ tools: [{ name: path.replaceAll(/\W/g, "") }] }) });
    expect(workflow.agents[0]?.holds).toEqual(["s.sjson"]);
  });

  it.each([
    [
      "an unknown agent",
      `${TOOLS}agents:\n  a: { servers: [net] }\ndelegations:\n  - from: a\n    to: ghost\n`,
      "LATTICE_UNKNOWN_NAME",
      14,
      "there is no agent `ghost`",
    ],
    [
      "an unknown server",
      `${TOOLS}agents:\n  a: { servers: [nets] }\n`,
      "LATTICE_UNKNOWN_NAME",
      11,
      "the agent `a` names the server `nets`, which is not under `servers`",
    ],
    [
      "an unknown capability",
      `${TOOLS}agents:\n  a: { servers: [net], allow: [send] }\n`,
      "LATTICE_UNKNOWN_NAME",
      11,
      "`allow` of the agent `a` names `send`, which no server offers; did you mean `net.send`?",
    ],
    [
      "a duplicate agent",
      `${TOOLS}agents:\n  a: { servers: [net] }\n  b: { servers: [net] }\n  a: { servers: [files] }\n`,
      "LATTICE_DUPLICATE",
      13,
      "`a` is in `agents` twice, first on line 11",
    ],
    [
      "a duplicate tool",
      "servers:\n  s:\n    tools: [{ name: x }, { name: x }]\nagents:\n  a: { servers: [s] }\n",
      "LATTICE_DUPLICATE",
      3,
      "the server `s`: the manifest lists the tool `x` twice; names must be unique",
    ],
    [
      "a duplicate rule",
      `${TOOLS}agents:\n  a: { servers: [net] }\nrules:\n  - { name: r, never: [net.send] }\n  - { name: r, never: [net.send] }\n`,
      "LATTICE_DUPLICATE",
      14,
      "the rule `r` is there twice, first on line 13",
    ],
    [
      "an empty capability set",
      `${TOOLS}agents:\n  a: { servers: [] }\n`,
      "LATTICE_EMPTY",
      11,
      "the agent `a` has an empty capability set; give it a server, or take it out",
    ],
    [
      "an empty allow list",
      `${TOOLS}agents:\n  a:\n    servers: [net]\n    allow: []\n`,
      "LATTICE_EMPTY",
      13,
      "`allow` of the agent `a` is empty",
    ],
    [
      "an empty delegation",
      `${TOOLS}agents:\n  a: { servers: [net], root: true }\ndelegations:\n  - { from: a, to: a, tools: [] }\n`,
      "LATTICE_EMPTY",
      13,
      "`tools` of the delegation from `a` to `a` is empty",
    ],
    [
      "an empty rule",
      `${TOOLS}agents:\n  a: { servers: [net] }\nrules:\n  - { name: r, never: [] }\n`,
      "LATTICE_EMPTY",
      13,
      "the rule `r` needs `never`, a list of what no agent may hold together",
    ],
    [
      "a rule about an unknown agent",
      `${TOOLS}agents:\n  a: { servers: [net] }\nrules:\n  - name: r\n    never: [net.send]\n    agents: []\n`,
      "LATTICE_EMPTY",
      15,
      "the rule `r` is about no agent: `agents` is empty; leave it out for all of them",
    ],
    [
      "tools twice over",
      "servers:\n  s:\n    tools: [{ name: x }]\n    manifest: no.json\nagents:\n  a: { servers: [s] }\n",
      "LATTICE_SHAPE",
      4,
      "the server `s` has both `tools` and a `manifest`; leave one of them out",
    ],
    [
      "a label that hides a capability",
      `${TOOLS}labels:\n  files.read: [net.send]\nagents:\n  a: { servers: [files, net], allow: [files.read] }\n`,
      "LATTICE_DUPLICATE",
      11,
      "the label `files.read` has the name of a capability; give it another one",
    ],
    [
      "a label that hides a pattern",
      `${TOOLS}labels:\n  files.*: [net.send]\nagents:\n  a: { servers: [files, net] }\n`,
      "LATTICE_SHAPE",
      11,
      "the label `files.*` may not contain stars: they stand for any text",
    ],
    [
      "a narrowing without schemas",
      `${TOOLS}agents:\n  a: { servers: [net] }\n  b: { servers: [net] }\ndelegations:\n  - from: a\n    to: b\n    arguments: [net.send]\n`,
      "LATTICE_SHAPE",
      16,
      "`arguments` of the delegation from `a` to `b` must be a mapping from names to schemas; name what is passed on under `tools`",
    ],
    ["no agents", TOOLS, "LATTICE_EMPTY", 1, "the workflow has no agents"],
    [
      "no agent with authority",
      `${TOOLS}agents:\n  a: { servers: [net] }\ndelegations:\n  - { from: a, to: a }\n`,
      "LATTICE_EMPTY",
      10,
      "no agent has authority of its own: every agent receives a delegation; mark one with `root: true`",
    ],
    [
      "a circle where none may be",
      `${TOOLS}cycles: forbid\nagents:\n  a: { servers: [net], root: true }\n  b: { servers: [net] }\ndelegations:\n  - { from: a, to: b }\n  - { from: b, to: a }\n`,
      "LATTICE_CYCLE",
      15,
      "delegations run in a circle: `a` → `b` → `a`",
    ],
    [
      "a misspelt field",
      `${TOOLS}agents:\n  a: { servers: [net], alow: [net.send] }\n`,
      "LATTICE_SHAPE",
      11,
      "the agent `a` has no field `alow`; it may have servers, tools, allow, root",
    ],
    ["broken YAML", "agents: [\n", "LATTICE_SYNTAX", 2, ""],
    [
      "a manifest that cannot be had",
      "servers:\n  s: { manifest: x.json }\nagents:\n  a: { servers: [s] }\n",
      "LATTICE_MANIFEST",
      2,
      "the server `s`: the manifest `x.json` cannot be read here; write the tools inline",
    ],
  ])("with %s says which line", (_, text, code, line, message) => {
    const error = problem(text);
    expect({ code: error.code, line: error.line }).toEqual({ code, line });
    expect(error.message).toContain(`line ${line}: ${message}`);
  });

  it("reports all its problems at once", () => {
    const error = problem(`${TOOLS}agents:\n  a: { servers: [x] }\n  b: { servers: [y] }\n`);
    expect([error, ...error.others].map(({ line }) => line).toSorted()).toEqual([11, 11, 12, 12]);
  });

  it("tells each tool that cannot be read by its own line, and no second problem because of it", () => {
    const error = problem(`servers:
  n:
    tools:
      - name: good
      - name: bad
        inputSchema: 5
      - { nam: q }
agents:
  a: { servers: [n] }
  b: { servers: [n], allow: { n.good: true, n.bad: true, n.ot*: true } }
delegations:
  - { from: a, to: b, tools: [n.good, n.bad] }
`);
    expect([error, ...error.others].map(({ message }) => message)).toEqual([
      "line 5: the server `n`: `inputSchema` of the tool `bad` is not a schema: expected an object",
      "line 7: the server `n`: tools[2] of the manifest has no name",
    ]);
  });

  it("has rules without a name by their number, however they are laid out", () => {
    const servers = { s: { tools: [{ name: "x" }, { name: "y" }] } };
    const rules = [{ never: ["s.x"] }, { name: "mine", never: ["s.x"] }, { never: ["s.y"] }];
    const workflow = parseWorkflow(JSON.stringify({ servers, agents: { a: { servers: ["s"] } }, rules }));
    expect(workflow.rules.map(({ name }) => name)).toEqual(["rule 1", "mine", "rule 3"]);
  });

  it.each([
    ["files.write: { maxProperties: 1 }, '*': true", { schema: { maxProperties: 1 } }],
    ["'*': true, files.write: { maxProperties: 1 }", { schema: { maxProperties: 1 } }],
    [
      "files.*: { minProperties: 1 }, w: { maxProperties: 1 }",
      { is: "all", of: [{ schema: { minProperties: 1 } }, { schema: { maxProperties: 1 } }] },
    ],
    ["'*': false, files.write: true", { schema: false }],
  ])("lets every entry count that names a capability, in any order: %s", (entries, expected) => {
    const { agents, delegations } = parseWorkflow(`${TOOLS}
labels: { w: [files.write] }
agents:
  a: { servers: [files, net], root: true, allow: { ${entries} } }
delegations:
  - { from: a, to: a, arguments: { ${entries} } }
`);
    expect(agents[0]?.allow?.get("files.write")).toMatchObject(expected);
    expect(delegations[0]?.arguments?.get("files.write")).toMatchObject(expected);
  });

  it("is not blown up by aliases of aliases", () => {
    const level = (name: string, of: string): string =>
      `${name}: &${name} [${Array.from({ length: 9 }, () => of).join(", ")}]`;
    const names = [..."abcdefgh"];
    const levels = names.map((name, i) => level(name, i === 0 ? "x" : `*${names[i - 1]}`));
    const error = problem(`servers:\n  s:\n    tools:\n      - name: t\n        inputSchema: {${levels.join(", ")}}\n`);
    expect([error, ...error.others].map(({ code }) => code)).toContain("LATTICE_TOO_LARGE");
  });
});

describe("a workflow in JSON", () => {
  /** With a comment at its end it is not valid JSON, and the YAML parser reads it. */
  const outcome = (text: string): unknown => {
    try {
      return parseWorkflow(text);
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
      return [error, ...error.others].map(({ code, message, line }) => ({ code, message, line }));
    }
  };
  const expectSame = (text: string): void => expect(outcome(text)).toEqual(outcome(`${text}\n# YAML`));

  it("a workflow in JSON is read as YAML would be, with the same lines", () => {
    for (const file of fc.sample(workflowFile, { numRuns: 30, seed: 5 })) {
      expectSame(JSON.stringify(file, null, 2));
      expectSame(JSON.stringify(file));
    }
  });

  it.each([
    '{ "agents": { "a": {\n "servers": ["x"] }, "a": { "servers": [] } } }',
    '{\n"servers": { "s": { "tools": [ { "name": "t\\u0041\\n\\"" } ] } },\n "agents": { "a": { "servers": ["s"], "root": 1e0 } } }',
    '{ "agents": {}, \n "delegations": [ { "from": 5 } ] }',
    '{ "agents": null }',
  ])("a workflow in JSON is reported on as YAML would be: %s", expectSame);

  it.each([
    '{ "agents": {} ',
    '{ "agents": { "a" } }',
    "{ agents: { a: { servers: [x] } } }",
    '{ "a": 01 }',
    '{ "a": "\t" }',
    '{"a":1}{"b":2}',
    "{,}",
  ])("leaves a workflow that is not JSON to the YAML parser: %s", (text) => expect(jsonParts(text)).toBeUndefined());

  it("a workflow in JSON ends within its depth", () => {
    expect(jsonParts(`{"a":${"[".repeat(100_000)}`)).toBeUndefined();
  });
});
