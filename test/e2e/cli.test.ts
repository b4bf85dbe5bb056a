// The command line as a person or a script uses it: exit codes, data on stdout, clear words on stderr.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { portcullis, root, type Serving, serve } from "./serving.js";

let gateway: Serving;
let cli: (...args: string[]) => ReturnType<typeof portcullis>;
let remote: (...args: string[]) => ReturnType<typeof portcullis>;
beforeAll(async () => {
  gateway = await serve(["--keep-arguments"]);
  cli = (...args) => portcullis(["--dir", gateway.dir, ...args]);
  remote = (...args) => cli(...args, "--url", gateway.url);
});
afterAll(() => gateway.stop());

describe("portcullis demo", () => {
  it("portcullis demo shows every outcome without a terminal and removes its files", () => {
    const { code, stdout, stderr } = portcullis(["demo", "--yes"]);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    for (const part of ["permit", "no-shell", "demo.cedar:30", "nothing ran", "approved", "good", "was changed"]) {
      expect(stdout).toContain(part);
    }
    expect(stdout).not.toContain("\u001b");
  });

  it("portcullis demo --json prints the same as data", () => {
    const steps = JSON.parse(portcullis(["--json", "demo", "--yes"]).stdout);
    expect(steps).toMatchObject({
      permit: { notes: 1 },
      deny: { rule: "no-shell" },
      challenge: { approved: true, left: 0 },
      ledger: { ok: true },
    });
  });

  it("portcullis demo names the next step when there is no terminal to ask", () => {
    const { code, stderr } = portcullis(["demo"]);
    expect(code).toBe(1);
    expect(stderr).toContain("portcullis demo --yes");
  });
});

describe("a reader that ends early", () => {
  it("a command ends without an error when the reader of its output ends early", async () => {
    const command = spawn(process.execPath, [join(root, "dist/cli/main.js"), "serve", "--help"]);
    let stderr = "";
    command.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    command.stdout.destroy();
    const [code] = (await once(command, "close")) as [number];
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });
});

describe("calls", () => {
  it("portcullis call exits with 0 when permitted, 2 when denied, 5 when it needs approval, 1 when it fails, 64 on wrong usage", () => {
    expect(remote("call", "math.add", '{"a":1,"b":2}')).toMatchObject({ code: 0, stdout: '{"sum":3}\n' });
    expect(remote("call", "shell.run", '{"command":"ls"}')).toMatchObject({ code: 2, stdout: "" });
    expect(remote("call", "notes.delete", '{"title":"x"}').code).toBe(5);
    expect(remote("call", "math.add", '{"a":"1","b":2}')).toMatchObject({ code: 1 });
    expect(remote("call", "math.add", "{")).toMatchObject({ code: 64 });
    expect(portcullis(["frobnicate"]).code).toBe(64);
    expect(portcullis(["call", "x", "--url", "http://127.0.0.1:1/mcp"])).toMatchObject({ code: 1 });
  });

  it("portcullis call names the rule that denied and the remedy", () => {
    expect(remote("call", "shell.run", '{"command":"ls"}').stderr).toContain("rule: no-shell");
    expect(remote("call", "math.add", '{"a":"1","b":2}').stderr).toContain("`/a` must be an integer");
    expect(portcullis(["call", "x", "--url", "http://127.0.0.1:1/mcp"]).stderr).toContain("portcullis serve");
  });

  it("a waiting call is approved once, by the operator [U7]", () => {
    const admin = ["--admin", gateway.admin];
    const title = '{"title":"once"}';
    const asked = portcullis(["--dir", gateway.dir, "call", "notes.delete", title, "--url", gateway.url]);
    expect(asked.code).toBe(5);
    expect(asked.stderr).toContain(`approve it with: portcullis --dir ${gateway.dir} approve ch_`);
    const waiting = JSON.parse(cli("--json", "approvals", "ls", ...admin).stdout) as {
      id: string;
      arguments_preview: string;
    }[];
    const mine = waiting.find((each) => each.arguments_preview === title);
    // Whoever is in the same working folder need not know the port.
    expect(cli("approve", mine?.id as string)).toMatchObject({ code: 0 });
    expect(cli("approve", mine?.id as string)).toMatchObject({
      code: 1,
      stderr: `error: approval request ${mine?.id} is already approved\n`,
    });
    expect(cli("approve", "ch_none").stderr).toContain("portcullis approvals ls");
    expect(remote("call", "notes.delete", title)).toMatchObject({ code: 0, stdout: "there is no note once\n" });
    expect(remote("call", "notes.delete", title).code).toBe(5);
    const other = mkdtempSync(join(tmpdir(), "portcullis-other-"));
    expect(portcullis(["--dir", other, "approvals", "ls", ...admin]).code).toBe(4);
    rmSync(other, { recursive: true, force: true });
  });
});

describe("policies", () => {
  it("policy check names file, line and the nearest correct name", () => {
    expect(cli("policy", "check")).toMatchObject({ code: 0 });
    const bad = join(gateway.dir, "bad.cedar");
    writeFileSync(
      bad,
      '\npermit (principal, action == Action::"math.add", resource)\nwhen { context.arguments.aa > 1 };\n',
    );
    const { code, stderr } = cli("policy", "check", "--policy", bad);
    expect(code).toBe(3);
    expect(stderr).toContain("bad.cedar:3");
    writeFileSync(bad, "permit (");
    expect(cli("policy", "check", "--policy", bad).code).toBe(3);
  });

  it("policy explain names the rule, the condition and the line", () => {
    const { code, stdout } = cli("policy", "explain", "notes.write", '{"title":"x","text":"y"}');
    expect(code).toBe(2);
    expect(stdout).toContain('context.arguments.title like "demo/*"');
    expect(cli("policy", "explain", "notes.write", '{"title":"demo/x","text":"y"}').code).toBe(0);
    expect(cli("policy", "explain", "notes.delete", '{"title":"x"}').code).toBe(5);
    expect(cli("policy", "explain", "nobody").code).toBe(64);
  });

  it("policy explain reports a call with invalid arguments as not permitted", () => {
    const { code, stdout } = cli("policy", "explain", "math.add", '{"a":1,"b":"x"}');
    expect(code).toBe(2);
    expect(stdout).toMatch(/deny: arguments of `math\.add`.*\n.*refused by the schema; policy alone says permit/);
    const cases = join(gateway.dir, "invalid.yaml");
    writeFileSync(cases, "- tool: math.add\n  arguments: { a: 1, b: x }\n  expect: permit\n");
    const tested = cli("policy", "test", cases);
    expect(tested.code).toBe(1);
    expect(tested.stdout).toContain("invalid.yaml:1 case 1: expected permit, got deny by schema: arguments of");
  });

  it("policy explain reports a call of a tool without a guardrail as not permitted", () => {
    const tools = join(gateway.dir, "guarded.json");
    const tool = { name: "wipe", inputSchema: { type: "object" }, noGuardrailRequired: false };
    writeFileSync(tools, JSON.stringify({ tools: [tool] }));
    const open = join(gateway.dir, "open.cedar");
    writeFileSync(open, "permit (principal, action, resource);");
    const { code, stdout } = cli("--json", "policy", "explain", "wipe", "--tools", tools, "--policy", open);
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({
      refusedBy: "guardrail",
      decision: { effect: "deny", rules: [{ id: "guardrail.missing" }] },
      policy: { effect: "permit" },
    });
  });

  it("policies are tested by cases, compared, replayed and suggested", () => {
    const cases = join(gateway.dir, "cases.yaml");
    writeFileSync(
      cases,
      "- name: adding\n  tool: math.add\n  arguments: { a: 1, b: 2 }\n  expect: permit\n- name: no shell\n  tool: shell.run\n  arguments: { command: ls }\n  expect: deny\n  rule: no-shell\n",
    );
    expect(cli("policy", "test", cases)).toMatchObject({ code: 0, stdout: "2 passed, 0 failed\n" });
    const stricter = join(gateway.dir, "stricter.cedar");
    writeFileSync(stricter, '@id("nothing") forbid (principal, action, resource);');
    expect(cli("policy", "test", cases, "--policy", stricter).code).toBe(1);
    const diff = JSON.parse(
      cli("--json", "policy", "diff", join(gateway.dir, "policy"), stricter, "--cases", cases).stdout,
    );
    expect(diff.decisions).toHaveLength(1);
    remote("call", "math.add", '{"a":20,"b":22}');
    const replay = JSON.parse(cli("--json", "audit", "replay", stricter).stdout);
    expect(replay.compared).toBeGreaterThan(0);
    expect(replay.changes[0]).toMatchObject({ before: "permit", after: "deny" });
    const suggested = cli("policy", "suggest");
    expect(suggested.stdout).toContain('action == Action::"math.add"');
    const file = join(gateway.dir, "suggested.cedar");
    writeFileSync(file, suggested.stdout);
    expect(cli("policy", "check", "--policy", file).code).toBe(0);
    // Neither a rule's no nor a person's say is undone by the suggestion.
    remote("call", "shell.run", '{"command":"ls"}');
    remote("call", "notes.delete", '{"title":"x"}');
    const careful = cli("policy", "suggest").stdout;
    writeFileSync(file, careful);
    const who = /Agent::"([^"]+)"/.exec(careful)?.[1] ?? "";
    const decided = (...call: string[]) => cli("policy", "explain", ...call, "--policy", file, "--agent", who).code;
    expect(decided("shell.run", '{"command":"ls"}')).toBe(2);
    expect(decided("notes.delete", '{"title":"x"}')).toBe(5);
    expect(careful).toContain("forbidden by no-shell");
    expect(careful).toContain('@approvers("operators")');
    expect(
      cli(
        "policy",
        "explain",
        "math.add",
        '{"a":20,"b":22}',
        "--policy",
        file,
        "--agent",
        `local/${process.env.USER ?? "root"}`,
      ).code,
    ).toBeLessThan(3);
  });
});

describe("a denial", () => {
  it("a denial prints the command that explains that call of that caller, and the command shows the values", () => {
    const denied = cli("call", "notes.write", '{"title":"it\'s","text":"y"}', "--url", gateway.url);
    expect(denied.code).toBe(2);
    const [, line = ""] = /^explain it with: (.*)$/m.exec(denied.stderr) ?? [];
    expect(line).toContain("--app local --agent local/");
    // Run by a shell as it stands, with the built program under its name.
    const script = `portcullis() { "$NODE" "$MAIN" "$@"; }; ${line}`;
    const env = { ...process.env, NODE: process.execPath, MAIN: join(root, "dist/cli/main.js"), NO_COLOR: "1" };
    const explained = spawnSync("sh", ["-c", script], { encoding: "utf8", timeout: 60_000, env });
    expect(explained.status, explained.stderr).toBe(2);
    expect(explained.stdout).toContain(`context.arguments.title = "it's"`);
    const away = portcullis(["call", "notes.write", '{"title":"x","text":"y"}', "--url", gateway.url], {
      cwd: tmpdir(),
    });
    expect(away.stderr).toContain("--agent APP/AGENT");
  });
});

describe("the audit log", () => {
  it("the audit log is tailed, verified, proved to a third party and exported", () => {
    remote("call", "clock.now");
    expect(cli("audit", "tail").stdout).toContain("clock.now");
    expect(cli("audit", "verify")).toMatchObject({ code: 0 });
    const proof = join(gateway.dir, "proof.json");
    expect(cli("audit", "prove", "2", "-o", proof).code).toBe(0);
    const outsider = spawnChecked(["examples/verify-proof.mjs", proof]);
    expect(outsider.code).toBe(0);
    writeFileSync(proof, readFileSync(proof, "utf8").replace("permit", "forbid").replace('\\"seq\\":2', '\\"seq\\":3'));
    expect(spawnChecked(["examples/verify-proof.mjs", proof]).code).toBe(1);
    const file = join(gateway.dir, "export.ndjson");
    expect(cli("audit", "export", "-o", file).code).toBe(0);
    expect(cli("audit", "verify", file)).toMatchObject({ code: 0 });
    writeFileSync(file, readFileSync(file, "utf8").replace("clock.now", "clock.not"));
    expect(cli("audit", "verify", file).code).toBe(1);
  });

  it("audit verify reports a flipped byte in a copy of the ledger", () => {
    const copy = mkdtempSync(join(tmpdir(), "portcullis-copy-"));
    cpSync(join(gateway.dir, "ledger"), copy, { recursive: true });
    const segment = join(copy, "seq-0000000000000000.ndjson");
    const bytes = readFileSync(segment);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 1;
    writeFileSync(segment, bytes);
    const { code, stdout } = portcullis(["audit", "verify", copy]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/record \d+/);
    rmSync(copy, { recursive: true, force: true });
  });
});

describe("the rest", () => {
  it("a second gateway on the same data directory writes a ledger of its own, verified with the first", async () => {
    const second = await serve(["--observe"], { dir: gateway.dir });
    try {
      expect(cli("call", "math.add", '{"a":1,"b":2}', "--url", second.url).code).toBe(0);
    } finally {
      await second.stop();
    }
    const { code, stdout } = cli("--json", "audit", "verify");
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ ok: true, ledgers: [{ ok: true }, { ok: true }] });
  });

  it("serve --stdio writes nothing but JSON-RPC to stdout", async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-stdio-"));
    const child = spawn(process.execPath, [join(root, "dist/cli/main.js"), "--dir", dir, "serve", "--stdio"]);
    let out = "";
    child.stdout.on("data", (chunk: Buffer) => {
      out += chunk;
    });
    const lines = [
      { id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {} } },
      { method: "notifications/initialized" },
      { id: 2, method: "tools/call", params: { name: "math.add", arguments: { a: 1, b: 2 } } },
    ];
    for (const line of lines) child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...line })}\n`);
    child.stdin.end();
    const code = await new Promise((resolve) => child.on("exit", resolve));
    expect(code).toBe(0);
    const answers = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(answers.at(-1)).toMatchObject({ id: 2, result: { structuredContent: { sum: 3 } } });
    rmSync(dir, { recursive: true, force: true });
  });

  it("serve --observe runs what policy denies and records it as denied", async () => {
    const observing = await serve(["--observe", "--keep-arguments"]);
    const run = (...args: string[]) => portcullis(["--dir", observing.dir, ...args]);
    expect(run("call", "notes.write", '{"title":"private/x","text":"y"}', "--url", observing.url)).toMatchObject({
      code: 0,
    });
    const line = run("audit", "tail").stdout;
    expect(line).toContain("deny");
    expect(line).toContain("(observed)");
    expect(run("policy", "suggest").stdout).toContain("private/x");
    await observing.stop();
  });
});

function spawnChecked(args: string[]): { code: number | null } {
  const { status } = spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });
  return { code: status };
}
