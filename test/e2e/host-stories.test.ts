// Stories that only a host has; those of every mode are in stories-host.test.ts.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { type Ran, root, serve } from "./serving.js";

process.umask(0o022);
const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-host-stories-")));
const code = join(base, "code");
const home = join(base, "home");
const config = join(home, ".config/portcullis/policy.yaml");
const state = join(home, ".local/state/portcullis/host");
const main = join(root, "dist", "cli", "main.js");
const env = { PATH: process.env.PATH ?? "", HOME: home, NO_COLOR: "1" };
const POLICY = `version: 1
allowedRoots: ["${code}"]
writeRules: [{ path: "${code}", recursive: true, createIfMissing: true }]
sandbox: preferred
`;
const ASK = `@id("ask-before-writing")
@outcome("challenge")
@approvers("operators")
@reason("an operator approves every write")
forbid (principal, action == Action::"fs.write", resource) unless { context.approved };
`;

function run(...args: string[]): Ran {
  const ran = spawnSync(process.execPath, [main, ...args], { cwd: home, env, encoding: "utf8", timeout: 120_000 });
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr };
}

const json = (...args: string[]): any => {
  const ran = run("--json", ...args);
  expect(ran.stdout, ran.stderr).not.toBe("");
  return JSON.parse(ran.stdout);
};

const clients: Client[] = [];
async function start(...args: string[]): Promise<Client> {
  const command = { command: process.execPath, args: [main, "host", "--log-level", "error", ...args], env };
  const client = await connect(command, { revision: "2026-07-28" });
  clients.push(client);
  return client;
}

/** The tool's own words, or the error object of a call that did not run. */
async function call(client: Client, tool: string, args: Record<string, unknown>, meta = {}): Promise<any> {
  const result = await client.callTool(tool, args as never, { meta });
  return result.structuredContent;
}

const AT_ONCE = { "portcullis/challengeWaitMs": 0 };
const write = (name: string) => ({ path: join(code, name), data: "written\n" });

beforeAll(() => {
  mkdirSync(code, { recursive: true });
  mkdirSync(join(home, ".config/portcullis"), { recursive: true, mode: 0o700 });
  writeFileSync(join(code, "a.txt"), "hello\n");
  writeFileSync(join(base, "secret.txt"), "secret\n");
  writeFileSync(config, POLICY, { mode: 0o600 });
});
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close();
  rmSync(join(state, "policy/ask.cedar"), { force: true });
  writeFileSync(config, POLICY, { mode: 0o600 });
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

it("lists the tools and calls one by command, which starts the host for it", () => {
  expect(run("ls", "--host")).toMatchObject({ code: 0, stdout: expect.stringContaining("cmd.run") });
  const args = JSON.stringify({ path: join(code, "a.txt") });
  expect(run("call", "fs.read", args, "--host")).toMatchObject({ code: 0, stdout: "hello\n\n" });
  const denied = run("call", "fs.read", JSON.stringify({ path: join(base, "secret.txt") }), "--host");
  expect(denied).toMatchObject({ code: 2, stdout: "" });
  expect(denied.stderr).toContain("policy explain fs.read");
});

it("checks, explains, tests and compares the policies of the host, with no host running", () => {
  expect(json("policy", "check")).toMatchObject({ app: "host", ok: true, rules: 1 });
  const permitted = run("policy", "explain", "fs.read", join(code, "a.txt"));
  expect(permitted).toMatchObject({ code: 0, stdout: expect.stringContaining("host.cedar") });
  expect(permitted.stdout).toContain("policy.yaml");
  const denied = json("policy", "explain", "fs.read", join(base, "secret.txt"), "--app", "host");
  expect(denied.decision).toMatchObject({ effect: "deny", rules: [{ id: "outsideAllowedRoots", file: config }] });
  const cases = join(home, "cases.yaml");
  writeFileSync(
    cases,
    `- { app: host, agent: me, tool: fs.read, arguments: { path: "${code}/a.txt" }, expect: permit }
- { app: host, agent: me, tool: fs.read, arguments: { path: "${base}/secret.txt" }, expect: deny }
`,
  );
  expect(run("policy", "test", cases), "policy test").toMatchObject({
    code: 0,
    stdout: expect.stringContaining("2 passed"),
  });
  writeFileSync(join(home, "ask.cedar"), ASK);
  const starter = join(state, "policy/host.cedar");
  writeFileSync(join(home, "both.cedar"), `${readFileSync(starter, "utf8")}\n${ASK}`);
  const diff = json("policy", "diff", starter, join(home, "both.cedar"), "--recorded");
  expect(diff).toMatchObject({ added: [{ id: "ask-before-writing" }], decisions: [] });
});

it("asks for an approval by a Cedar rule, and an approver approves by command [M11]", async () => {
  const client = await start();
  writeFileSync(join(state, "policy/ask.cedar"), ASK);
  const pending = await waitFor(async () => {
    const answer = await call(client, "fs.write", { ...write("one.txt"), overwrite: true }, AT_ONCE);
    return answer.code === "CHALLENGE" ? answer : undefined;
  });
  rmSync(join(code, "one.txt"), { force: true });
  expect(pending.approval_url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/approve\//);
  expect(json("approvals", "ls")).toMatchObject([{ id: pending.challenge, app: "host", tool: "fs.write" }]);
  expect(run("approve", pending.challenge).code).toBe(0);
  const again = await call(client, "fs.write", { ...write("one.txt"), overwrite: true }, AT_ONCE);
  expect(again).toMatchObject({ bytesWritten: 8 });
  expect(readFileSync(join(code, "one.txt"), "utf8")).toBe("written\n");
  const lines = readFileSync(join(state, "audit.jsonl"), "utf8").trim().split("\n");
  const asked = lines.map((line) => JSON.parse(line)).find((line) => line.code === "CHALLENGE");
  expect(asked).toMatchObject({ tool: "fs.write", decision: "deny", rule: "ask-before-writing" });
  expect(asked.reqId).toMatch(/^[0-9a-f]{32}$/);
});

it("applies a saved policy.yaml at once, and keeps the old one when the new one is invalid [M11]", async () => {
  const client = await start();
  const path = join(code, "a.txt");
  expect(await call(client, "fs.read", { path })).toMatchObject({ data: "hello\n" });
  mkdirSync(join(code, "inner"), { recursive: true });
  writeFileSync(config, `version: 1\nallowedRoots: ["${code}/inner"]\n`);
  const denied = await waitFor(async () => {
    const answer = await call(client, "fs.read", { path });
    return answer.code === "POLICY_DENY" ? answer : undefined;
  });
  expect(denied.rule).toBe("outsideAllowedRoots");
  writeFileSync(config, `version: 1\nallowedRoots: ["${code}"]\nallowedRoot: []\n`);
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(await call(client, "fs.read", { path })).toMatchObject({ code: "POLICY_DENY" });
});

it("enforces the same policy.yaml for an application of a gateway [H10]", async () => {
  const dir = join(base, "gateway");
  const declared = join(home, "portcullis.yaml");
  const rule = `permit (principal in App::"laptop", action in [Action::"core.filesystem.readFile"], resource);`;
  writeFileSync(join(home, "laptop.cedar"), rule);
  writeFileSync(
    declared,
    `applications:
  laptop:
    permissions: ["core.filesystem.*"]
    policies: [laptop.cedar]
    hostPolicy: ${config}
`,
  );
  const applied = run("--dir", dir, "app", "apply", declared, "--yes");
  expect(applied.code, applied.stderr).toBe(0);
  const gateway = await serve(["--app", "laptop"], { dir });
  try {
    const client = await connect(gateway.url, { revision: "2026-07-28" });
    clients.push(client);
    const read = (path: string): Promise<any> => call(client, "core.filesystem.readFile", { path });
    expect(await read(join(code, "a.txt"))).toMatchObject({ data: "hello\n" });
    const denied = await read(join(base, "secret.txt"));
    expect(denied).toMatchObject({ code: "POLICY_DENY", rule: "outsideAllowedRoots" });
    expect(JSON.stringify(denied)).not.toContain("secret\\n");
  } finally {
    await gateway.stop();
  }
});

it("ends at SIGTERM while its stdin is open, and writes nothing but JSON-RPC to stdout", async () => {
  const child: ChildProcess = spawn(process.execPath, [main, "host", "--log-level", "debug"], { cwd: home, env });
  let stdout = "";
  child.stdout?.on("data", (chunk) => {
    stdout += String(chunk);
  });
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const request = { jsonrpc: "2.0", id: 1, method: "fs.read", params: { path: join(code, "a.txt") } };
  child.stdin?.write(`${JSON.stringify(request)}\n`);
  await waitFor(async () => (stdout.includes("\n") ? true : undefined));
  child.kill("SIGTERM");
  expect(await exited).toBe(0);
  const lines = stdout.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line).jsonrpc)).toEqual(lines.map(() => "2.0"));
});

async function waitFor<T>(look: () => Promise<T | undefined>): Promise<T> {
  const until = Date.now() + 20_000;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (Date.now() > until) throw new Error("waited for 20 s");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
