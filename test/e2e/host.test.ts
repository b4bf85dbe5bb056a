// `portcullis host` as a client starts it: exactly three tools, decided by policy.yaml, on record.

import { spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client as SdkClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../src/mcp/client/index.js";
import { portcullis, root } from "./serving.js";

// A policy that the group can write does not start, and some machines make every file so.
process.umask(0o022);
const base = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-host-")));
const code = join(base, "code");
const scratch = join(code, "scratch");
const config = join(base, "policy.yaml");
const state = join(base, "state");
const main = join(root, "dist", "cli", "main.js");

beforeAll(() => {
  mkdirSync(scratch, { recursive: true });
  writeFileSync(join(code, "readme.txt"), "hello from the root\n");
  writeFileSync(join(base, "secret.txt"), "nobody reads this\n");
  symlinkSync(join(base, "secret.txt"), join(code, "innocent.txt"));
  writeFileSync(
    config,
    `version: 1
allowedRoots: ["${code}"]
writeRules:
  - path: "${scratch}"
    recursive: true
    maxFileBytes: 1_000
    createIfMissing: true
commands:
  - id: ls
    exec: /bin/ls
    args: { allow: ["-l", "-a"] }
  - id: sleep
    exec: /bin/sleep
    args: { allow: ["5"] }
    timeoutMs: 500
  - id: slow
    exec: /bin/sh
    args: { fixed: ["-c", "echo PARTIAL; sleep 5"] }
    timeoutMs: 2_000
sandbox: preferred
logging: { file: "${join(base, "audit.jsonl")}" }
`,
  );
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** A host on a line of raw JSON-RPC. */
function start() {
  const child = spawn(process.execPath, [main, "host", "--config", config, "--state", state]);
  const waiting = new Map<number, (answer: any) => void>();
  const answered: unknown[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line);
    answered.push(answer.id);
    waiting.get(answer.id)?.(answer);
  });
  let next = 0;
  const ask = (method: string, params: object): Promise<any> =>
    new Promise((resolve) => {
      const id = ++next;
      waiting.set(id, resolve);
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    });
  const stop = (): Promise<number | null> => {
    const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
    child.stdin.end();
    return exited;
  };
  const tell = (method: string, params?: object): void =>
    void child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", method, params })}\n`);
  const raw = (id: number, bytes: Buffer): Promise<any> =>
    new Promise((resolve) => {
      waiting.set(id, resolve);
      child.stdin.write(bytes);
    });
  return { ask, tell, raw, answered, stop };
}

describe("portcullis host", () => {
  it("portcullis host speaks plain JSON-RPC without a handshake, and ends when its client does [M1]", async () => {
    const host = start();
    expect(await host.ask("fs.read", { path: join(code, "readme.txt") })).toMatchObject({
      result: { data: "hello from the root\n", bytesRead: 20 },
    });
    expect(
      await host.ask("fs.write", { path: join(scratch, "out.txt"), data: "SGVsbG8=", encoding: "base64" }),
    ).toMatchObject({
      result: { bytesWritten: 5 },
    });
    expect(readFileSync(join(scratch, "out.txt"), "utf8")).toBe("Hello");
    const listed = await host.ask("cmd.run", { commandId: "ls", args: [], cwd: code });
    expect(listed.result).toMatchObject({ exitCode: 0, timedOut: false, truncated: false });
    expect(listed.result.stdout).toContain("readme.txt");
    expect(await host.stop()).toBe(0);
  });

  it("portcullis host answers a message that is refused with its id, and a cancelled one not at all [M1]", async () => {
    const host = start();
    const path = JSON.stringify(join(code, "readme.txt"));
    const bytes = (id: number, value: Buffer): Buffer =>
      Buffer.concat([
        Buffer.from(`{"jsonrpc":"2.0","id":${id},"method":"fs.read","params":{"path":"`),
        value,
        Buffer.from('"}}\n'),
      ]);
    const duplicate = `{"jsonrpc":"2.0","method":"fs.read","params":{"path":${path},"path":${path}},"id":101}\n`;
    const large = Buffer.alloc(20_000_000, 0x61);
    for (const [id, sent] of [
      [101, Buffer.from(duplicate)],
      [102, bytes(102, Buffer.from("\\ud800"))],
      [103, bytes(103, Buffer.from([0xed, 0xa0, 0x80]))],
      [104, bytes(104, large)],
    ] as const) {
      expect(await host.raw(id, sent)).toMatchObject({ id, error: { message: expect.any(String) } });
    }
    const cancelled = host.ask("cmd.run", { commandId: "slow", args: [], cwd: code });
    host.tell("notifications/cancelled", { requestId: 1 });
    let isAnswered = false;
    void cancelled.then(() => {
      isAnswered = true;
    });
    // The command would have run out of its two seconds by then.
    await host.ask("cmd.run", { commandId: "slow", args: [], cwd: code });
    expect(isAnswered).toBe(false);
    expect(host.answered).not.toContain(1);
    await host.stop();
  }, 30_000);

  it("portcullis host keeps the request's id in the audit line of a denial [M7]", async () => {
    const host = start();
    const secret = join(base, "secret.txt");
    const answer = await host.ask("fs.read", { path: secret });
    const lines = readFileSync(join(base, "audit.jsonl"), "utf8").trim().split("\n");
    const line = lines.map((text) => JSON.parse(text)).findLast((entry) => entry.path === secret);
    expect(line).toMatchObject({ decision: "deny", tool: "fs.read" });
    expect(line.reqId).toMatch(/^[0-9a-f]{32}$/);
    expect(JSON.stringify(answer)).toContain(line.reqId);
    await host.stop();
  });

  it("portcullis host writes an audit line with the request's id for invalid arguments [M7]", async () => {
    const host = start();
    const path = join(code, "readme.txt");
    const answer = await host.ask("fs.read", { path, offset: "three" });
    expect(answer.error.data.code).toBe("INVALID_ARGS");
    const lines = readFileSync(join(base, "audit.jsonl"), "utf8").trim().split("\n");
    const line = lines.map((text) => JSON.parse(text)).at(-1);
    expect(line).toMatchObject({ decision: "deny", tool: "fs.read", code: "INVALID_ARGS", path });
    expect(line.reqId).toBe(answer.error.data.trace_id);
    expect(line.reqId).toMatch(/^[0-9a-f]{32}$/);
    await host.stop();
  });

  it("portcullis host denies with the rule that decided, without effect", async () => {
    const host = start();
    const denied = async (method: string, params: object, code: string): Promise<void> => {
      const answer = await host.ask(method, params);
      expect(answer.error?.data, JSON.stringify(answer)).toMatchObject({ code });
      expect(answer.error.data.rule).not.toBe("");
    };
    await denied("fs.read", { path: join(base, "secret.txt") }, "POLICY_DENY");
    await denied("fs.read", { path: join(code, "innocent.txt") }, "POLICY_DENY");
    await denied("fs.read", { path: `${code}/../secret.txt` }, "POLICY_DENY");
    await denied("fs.read", { path: config }, "POLICY_DENY");
    await denied("fs.write", { path: join(code, "readme.txt"), data: "x", overwrite: true }, "POLICY_DENY");
    await denied("fs.write", { path: join(scratch, "big.txt"), data: "x".repeat(2_000) }, "POLICY_DENY");
    await denied("cmd.run", { commandId: "ls", args: ["--color"], cwd: code }, "POLICY_DENY");
    await denied("cmd.run", { commandId: "sh", args: ["-c", "id"] }, "POLICY_DENY");
    await denied("fs.read", { path: 5 }, "INVALID_ARGS");
    await denied("cmd.run", { commandId: "sleep", args: ["5"], cwd: code }, "TIMEOUT");
    expect((await host.ask("fs.delete", {})).error).toBeDefined();
    expect(readFileSync(join(code, "readme.txt"), "utf8")).toBe("hello from the root\n");
    expect(existsSync(join(scratch, "big.txt"))).toBe(false);
    await host.stop();
  });

  it.each(["2026-07-28", "2025-11-25"] as const)(
    "portcullis host offers exactly three MCP tools in %s [M1]",
    async (revision) => {
      const client = await connect(
        { command: process.execPath, args: [main, "host", "--config", config, "--state", state] },
        { revision },
      );
      expect((await client.listTools()).map((tool) => tool.name).sort()).toEqual(["cmd.run", "fs.read", "fs.write"]);
      expect(await client.callTool("fs.read", { path: "readme.txt" })).toMatchObject({
        structuredContent: { data: "hello from the root\n" },
      });
      const denied = await client.callTool("fs.read", { path: "/etc/passwd" });
      expect(denied.isError).toBe(true);
      expect(JSON.stringify(denied)).toContain("POLICY_DENY");
      await client.close();
    },
  );

  it("portcullis host reports a command's output at its timeout, which timeout it was, and the remedy [G5]", async () => {
    const host = start();
    const told = (data: any): void => {
      expect(data).toMatchObject({
        code: "TIMEOUT",
        tool_name: "cmd.run",
        timeout_ms: 400,
        timedOut: true,
        partial: { stdout: "PARTIAL\n", timedOut: true },
        suggestions: ["ask for less at once", "give it more time: timeoutMs may be up to 2000"],
      });
    };
    const call = { commandId: "slow", args: [], cwd: code, timeoutMs: 400 };
    told((await host.ask("cmd.run", call)).error.data);
    const tool = { name: "cmd.run", arguments: call };
    const meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const modern = await host.ask("tools/call", { ...tool, _meta: meta });
    expect(modern.result.isError).toBe(true);
    told(modern.result.structuredContent);
    await host.ask("initialize", {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "t", version: "1" },
    });
    host.tell("notifications/initialized");
    const { result } = await host.ask("tools/call", tool);
    expect(result.isError).toBe(true);
    expect(result).not.toHaveProperty("structuredContent");
    told(JSON.parse(result.content.at(-1).text));
    await host.stop();
  });

  it("portcullis host is understood by the official SDK of the handshake era, which checks structured content [M8]", async () => {
    const client = new SdkClient({ name: "t", version: "1" });
    await client.connect(
      new StdioClientTransport({
        command: process.execPath,
        args: [main, "host", "--config", config, "--state", state],
        stderr: "ignore",
      }),
    );
    await client.listTools();
    const args = { commandId: "slow", args: [], cwd: code, timeoutMs: 400 };
    const answer = await client.callTool({ name: "cmd.run", arguments: args });
    expect(answer.isError).toBe(true);
    expect(JSON.stringify(answer.content)).toContain("PARTIAL");
    await client.close();
  });

  it("portcullis host writes a line for every request, and a ledger that verifies [M7]", () => {
    const lines = readFileSync(join(base, "audit.jsonl"), "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.some((line) => line.tool === "fs.read" && line.decision === "allow" && line.bytes === 20)).toBe(true);
    expect(lines.some((line) => line.tool === "cmd.run" && line.decision === "deny")).toBe(true);
    expect(lines.every((line) => typeof line.policyHash === "string")).toBe(true);
    expect(JSON.stringify(lines)).not.toContain("hello from the root");
    expect(portcullis(["audit", "verify", join(state, "ledger", "0")]).code).toBe(0);
  });

  it("portcullis host refuses a policy with a mistake, with file, line and remedy, and one that opens its own ledger", () => {
    const bad = join(base, "bad.yaml");
    writeFileSync(bad, 'version: 1\nallowedRoots: ["/tmp"]\nalowedRoots: []\n');
    const wrong = portcullis(["host", "--config", bad, "--state", state]);
    expect(wrong.code).toBe(3);
    expect(wrong.stderr).toContain("bad.yaml:3");
    writeFileSync(bad, `version: 1\nallowedRoots: ["${base}"]\n`);
    const open = portcullis(["host", "--config", bad, "--state", state]);
    expect(open.code).toBe(3);
  });
});
