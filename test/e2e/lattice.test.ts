// "Can any agent in this workflow reach a capability it should not?", asked at the command line, and held to at the gate.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { portcullis, root, serve } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-lattice-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const write = (name: string, text: string): string => {
  const file = join(dir, name);
  writeFileSync(file, text);
  return file;
};

const workflow = (allow: string): string =>
  write(
    "workflow.yaml",
    `servers:
  files:
    tools:
      - name: read
        inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
  net:
    tools: [{ name: send }]
agents:
  boss: { servers: [files, net] }
  reader: { servers: [files, net], allow: ${allow} }
delegations:
  - { from: boss, to: reader }
`,
  );

describe("portcullis lattice check and graph", () => {
  it("portcullis lattice check finds the path by which an agent obtains a forbidden capability, and exits with 2", () => {
    const { code, stdout } = portcullis(["lattice", "check", workflow("[files.read]")]);
    expect(code).toBe(2);
    expect(stdout).toContain("`reader` can come to hold `net.send`");
    expect(stdout).toContain("boss");
  });

  it("portcullis lattice check prints tool names of a manifest without control characters", () => {
    const evil = "\u001b[2Jgone\u009b31m\u202e";
    const file = write(
      "evil.json",
      JSON.stringify({
        servers: { s: { tools: [{ name: evil }] }, t: { tools: [{ name: "y" }] } },
        agents: { a: { servers: ["s", "t"] }, b: { servers: ["s", "t"], allow: ["t.y"] } },
        delegations: [
          { from: "a", to: "b", tools: [`s.${evil}`] },
          { from: "b", to: "b" },
        ],
      }),
    );
    const broken = write("evil-broken.json", JSON.stringify({ agents: { [evil]: {} } }));
    for (const args of [
      ["check", file],
      ["check", "--sarif", file],
      ["check", broken],
      ["graph", file],
      ["graph", "--format", "dot", file],
      ["graph", "--format", "json", file],
    ]) {
      const { stdout, stderr } = portcullis(["lattice", ...args]);
      expect(stdout + stderr).toContain("gone");
      expect(stdout + stderr).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
    }
    const { violations } = JSON.parse(portcullis(["--json", "lattice", "check", file]).stdout) as {
      violations: { grant: { capability: string } }[];
    };
    expect(violations[0]?.grant.capability).toBe(`s.${evil}`);
  });

  it("portcullis lattice check reports no violation when none exists, and exits with 0", () => {
    const { code, stdout } = portcullis(["lattice", "check", workflow("[files.read, net.send]")]);
    expect(code).toBe(0);
    expect(stdout).toContain("clean");
  });

  it("portcullis lattice check prints a bounded number of violations and the number of the others", () => {
    const agents = Array.from({ length: 5 }, (_, i) => `  w${i}: { servers: [s], allow: [s.y] }`).join("\n");
    const file = write("many.yaml", `servers: { s: { tools: [{ name: x }, { name: y }] } }\nagents:\n${agents}\n`);
    const text = portcullis(["lattice", "check", "--most", "2", file]);
    expect(text.stdout.match(/✗/g)).toHaveLength(2);
    expect(text.stdout).toContain("5 violations, 3 of them not shown");
    const json = portcullis(["--json", "lattice", "check", "--most", "2", file]).stdout;
    expect(JSON.parse(json)).toMatchObject({ violations: { length: 2 }, leftOut: 3 });
    const sarif = portcullis(["lattice", "check", "--sarif", "--most", "2", file]).stdout;
    expect(JSON.parse(sarif)).toMatchObject({ runs: [{ results: { length: 2 }, properties: { leftOut: 3 } }] });
    expect(portcullis(["lattice", "check", "--most", "none", file]).code).toBe(64);
  });

  it("portcullis lattice check names the file in SARIF relative to where it runs", () => {
    const uris = (cwd: string, file: string): string =>
      portcullis(["lattice", "check", "--sarif", file], { cwd }).stdout;
    const file = workflow("[files.read]");
    expect(uris(dir, "workflow.yaml")).toContain('"uri": "workflow.yaml"');
    expect(uris(root, file)).toContain('"uri": "file:///');
  });

  it("portcullis lattice check names the schemas that cannot be used", () => {
    const file = write(
      "unusable.yaml",
      `servers:
  n:
    tools:
      - { name: x, inputSchema: { type: objct } }
      - { name: y, inputSchema: { properties: { p: { pattern: "(" } } } }
      - { name: z, inputSchema: { $ref: "#/nowhere" } }
agents:
  a: { servers: [n] }
  b: { servers: [n], allow: { n.x: { type: 5 } } }
`,
    );
    const { stderr } = portcullis(["lattice", "check", file]);
    for (const whose of [
      "the arguments of `n.x`",
      "the arguments of `n.y`",
      "the arguments of `n.z`",
      "line 9: what `allow` of `b` says of `n.x`",
    ])
      expect(stderr).toContain(`${whose} cannot be checked: `);
  });

  it("portcullis lattice writes reports for CI, and graphs", () => {
    const file = workflow("[files.read]");
    expect(JSON.parse(portcullis(["lattice", "check", "--sarif", file]).stdout)).toMatchObject({ version: "2.1.0" });
    expect(portcullis(["lattice", "graph", file]).stdout).toContain("<svg");
    expect(portcullis(["lattice", "graph", "--format", "mermaid", file]).stdout).toContain("flowchart");
    expect(portcullis(["lattice", "graph", "--format", "paint", file]).code).toBe(64);
  });

  it("portcullis lattice graph produces the pictures of the guide", () => {
    const guide = readFileSync(join(root, "docs", "guides", "lattice.md"), "utf8");
    for (const [, name, text] of guide.matchAll(/^```(?:json|yaml) (\S+)\n([^]*?)^```/gm))
      write(name ?? "", text ?? "");
    for (const [file, picture] of [
      ["workflow.yaml", "lattice-unsafe.svg"],
      ["safe.yaml", "lattice-safe.svg"],
    ] as const) {
      const { stdout } = portcullis(["lattice", "graph", join(dir, file)]);
      expect(stdout).toBe(readFileSync(join(root, "docs", "guides", picture), "utf8"));
    }
  });

  it("portcullis lattice check names every mistake with its line [L5]", () => {
    const file = write(
      "bad.yaml",
      `cycles: forbid
servers:
  files: { tools: [{ name: read }, { name: read }] }
  none: { tools: [] }
  net: { tools: [{ name: send }] }
agents:
  a: { servers: [net] }
  b: { servers: [nobody] }
  c: { servers: [net], tools: [files.write] }
  a: { servers: [net] }
delegations:
  - { from: a, to: c }
  - { from: c, to: a }
  - from: a
    to: stranger
rules:
  - { name: r, never: [net.send] }
  - { name: r, never: [net.send] }
`,
    );
    const { code, stderr } = portcullis(["lattice", "check", file]);
    expect(code).toBe(3);
    for (const problem of [
      /line 3: the server `files`.*`read` twice/,
      /line 4: the server `none` has no tools/,
      /line 8: the agent `b` names the server `nobody`/,
      /line 8: the agent `b` has an empty capability set/,
      /line 9: .*`files\.write`, which no server offers/,
      /line 10: .*`a`.*twice/,
      /line 12: delegations run in a circle: `a` → `c` → `a`/,
      /line 15: there is no agent `stranger`/,
      /line 18: the rule `r` is there twice, first on line 17/,
    ]) {
      expect(stderr).toMatch(problem);
    }
  });

  it("portcullis lattice check names cycles of delegations even when they are allowed", () => {
    const file = write(
      "circle.yaml",
      readFileSync(workflow("[files.read, net.send]"), "utf8")
        .concat("  - { from: reader, to: boss }\n")
        .replace("boss: {", "boss: { root: true,"),
    );
    const { code, stderr } = portcullis(["lattice", "check", file]);
    expect(code).toBe(0);
    expect(stderr).toMatch(/line 12: delegations run in a circle/);
  });

  it("portcullis lattice check emits the policy that enforces the result, and none when a check failed", () => {
    const { code, stdout } = portcullis(["lattice", "check", "--emit", "policy", workflow("[files.read, net.send]")]);
    expect(code).toBe(0);
    expect(stdout).toContain('Agent::"local/reader"');
    const bad = portcullis(["lattice", "check", "--emit", "policy", workflow("[files.read]")]);
    expect([bad.code, bad.stdout]).toEqual([2, ""]);
    expect(bad.stderr).toContain("`reader` can come to hold `net.send`");
  });
});

describe("portcullis lattice caps", () => {
  const tools = [
    { name: "read", inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] } },
  ];

  it("portcullis lattice caps prints a capability set from a manifest file, bare or as a JSON-RPC answer", () => {
    const bare = write("bare.json", JSON.stringify({ tools }));
    const answer = write("answer.json", JSON.stringify({ jsonrpc: "2.0", id: 1, result: { tools } }));
    for (const file of [bare, answer]) {
      const { code, stdout } = portcullis(["lattice", "caps", file]);
      expect(code).toBe(0);
      expect(stdout).toMatch(/read +{ path: string, … } +anything/);
      const [capability] = JSON.parse(portcullis(["--json", "lattice", "caps", file]).stdout) as unknown[];
      expect(capability).toEqual({ name: "read", arguments: tools[0]?.inputSchema, result: true });
    }
  });

  it("portcullis lattice caps prints a capability set from a running server, by its address or its command [L4]", async () => {
    const serving = await serve();
    const { stdout } = portcullis(["--json", "lattice", "caps", serving.url]);
    await serving.stop();
    expect((JSON.parse(stdout) as { name: string }[]).map(({ name }) => name)).toContain("math.add");
    const command = [
      process.execPath,
      join(root, "dist", "cli", "main.js"),
      "--dir",
      join(dir, "started"),
      "serve",
      "--stdio",
    ];
    const started = portcullis(["--json", "lattice", "caps", "--", ...command]);
    expect((JSON.parse(started.stdout) as { name: string }[]).map(({ name }) => name)).toContain("math.add");
  });

  it("portcullis lattice caps reports what is wrong with a manifest", () => {
    expect(portcullis(["lattice", "caps", join(dir, "no.json")]).stderr).toContain("there is no file");
    expect(portcullis(["lattice", "caps", write("odd.json", "{}")]).stderr).toContain("a list `tools`");
    const twice = write("twice.json", JSON.stringify({ tools: [...tools, ...tools] }));
    expect(portcullis(["lattice", "caps", twice]).stderr).toContain("lists the tool `read` twice");
  });
});

describe("portcullis serve --workflow", () => {
  const served = (): string =>
    write(
      "served.yaml",
      `servers:
  math: { tools: [{ name: add, inputSchema: { type: object, properties: { a: { type: integer }, b: { type: integer } } } }] }
  clock: { tools: [{ name: now }] }
agents:
  boss: { servers: [math, clock] }
  sums: { servers: [math, clock], allow: [math.add] }
delegations:
  - { from: boss, to: sums, tools: [math.add], arguments: { math.add: { properties: { a: { maximum: 10 } } } } }
`,
    );

  it("portcullis serve --workflow denies what the analysis says an agent cannot do, and records the path [L5]", async () => {
    const state = join(dir, "state");
    const serving = await serve(["--workflow", served()], { dir: state });
    const token = (name: string, args: string[]): string =>
      write(name, portcullis(["--dir", state, "lattice", "token", ...args]).stdout);
    const boss = token("boss.token", ["mint", "boss"]);
    const sums = token("sums.token", ["hand-on", boss, "sums"]);
    const call = (file: string, tool: string, args: string) =>
      portcullis(["call", tool, args, "--url", serving.url, "--delegation", file]);
    expect(call(sums, "math.add", '{"a":1,"b":2}').stdout).toContain("3");
    expect(call(boss, "math.add", '{"a":11,"b":2}').code).toBe(0);
    const denied = call(sums, "math.add", '{"a":11,"b":2}');
    expect([denied.code, denied.stderr]).toEqual([2, expect.stringContaining("does not include these arguments")]);
    expect(call(sums, "clock.now", "{}").code).toBe(1);
    expect(portcullis(["call", "clock.now", "--url", serving.url]).stderr).toContain("no authority of its own");
    const tail = portcullis(["--json", "--dir", state, "audit", "tail"]).stdout;
    expect(tail).toContain('"chain"');
    await serving.stop();
  });

  it("portcullis serve --workflow refuses a workflow that violates its own rules", () => {
    const file = write("broken.yaml", readFileSync(served(), "utf8").replace("tools: [math.add], ", ""));
    const { code, stderr } = portcullis(["--dir", join(dir, "other"), "serve", "--port", "0", "--workflow", file]);
    expect(code).toBe(2);
    expect(stderr).toContain("`sums` can come to hold `clock.now`");
  });
});
