// The first hour of a newcomer: from a client's configuration to a permit, a deny, a challenge, an approval and a ledger
// that verifies; with the client starting Portcullis itself, and with a gateway on HTTP.

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Newcomer, newcomer, TOKEN } from "./first-hour.js";

const info = { name: "a client", version: "1.0.0" };
const NOTE = { entities: [{ name: "ada", entityType: "person", observations: ["likes tea"] }] };

interface Entry {
  command: string;
  args: string[];
}

describe("the first hour", { timeout: 120_000 }, () => {
  let world: Newcomer;
  let before: string;
  const said: string[] = [];
  const run = (...args: string[]) => {
    const ran = world.run(...args);
    said.push(ran.stdout, ran.stderr);
    return ran;
  };
  beforeAll(() => {
    world = newcomer();
    before = readFileSync(world.claude, "utf8");
  });
  afterAll(() => world.close());

  it("import shows what would change, and changes nothing without confirmation [H5]", () => {
    const { code, stdout, stderr } = run("import", "--from", "claude-desktop");
    expect(code).toBe(64);
    expect(stderr).toContain("--yes");
    expect(stdout).toContain("+ new application local");
    expect(stdout).toContain("+ server filesystem: ");
    expect(stdout).toContain("+ secret everything.DEMO_API_KEY");
    expect(stdout).toContain('noGuardrail: ["*"]');
    expect(stdout).toContain("+ policy imported.cedar");
    expect(existsSync(world.data)).toBe(false);
  });

  it("import takes the servers over and encrypts the credential [H5]", () => {
    expect(run("import", "--from", "claude-desktop", "--yes").code).toBe(0);
    const shown = JSON.parse(run("--json", "app", "show", "local").stdout);
    expect(shown.document.servers.everything.env).toEqual({ DEMO_API_KEY: "${secret:everything.DEMO_API_KEY}" });
    expect(shown.document.servers.memory.env).toEqual({ MEMORY_FILE_PATH: join(world.home, "memory.jsonl") });
    expect(shown.document.servers.thinking).toMatchObject({ prefix: "thinking", noGuardrail: ["*"] });
    const dir = world.data;
    for (const name of readdirSync(dir).filter((each) => statSync(join(dir, each)).isFile())) {
      expect(readFileSync(join(dir, name)).includes(TOKEN), name).toBe(false);
    }
    expect(run("import", "--from", "claude-desktop", "--yes").stdout).toContain("nothing is different");
  });

  it("connect replaces the servers in the client's configuration by Portcullis, once", () => {
    expect(run("connect", "claude-desktop", "--yes").code).toBe(0);
    const text = readFileSync(world.claude, "utf8");
    expect(text).toContain("// chosen with care");
    const config = JSON.parse(text.replace(/^\s*\/\/.*$/m, ""));
    expect(config).toMatchObject({ theme: "dark", mcpServers: { portcullis: { command: process.execPath } } });
    expect(Object.keys(config.mcpServers)).toEqual(["portcullis"]);
    expect(text).not.toContain(TOKEN);
    expect(run("connect", "claude-desktop", "--yes").stdout).toContain("is connected already");
    expect(readFileSync(world.claude, "utf8")).toBe(text);
    expect(statSync(world.claude).mode & 0o777).toBe(0o644);
  });

  it("a client that starts the gateway gets one permit, one denial and one challenge that an approver approves [U7]", async () => {
    const text = readFileSync(world.claude, "utf8").replace(/^\s*\/\/.*$/m, "");
    const { command, args } = (JSON.parse(text) as { mcpServers: { portcullis: Entry } }).mcpServers.portcullis;
    const client = new Client(info);
    const waiting = [...args, "--challenge-wait", "0.2"];
    await client.connect(new StdioClientTransport({ command, args: waiting, env: world.env(), stderr: "pipe" }));
    try {
      const names = (await client.listTools()).tools.map((tool) => tool.name);
      // As models take them.
      expect(names.filter((name) => !/^[A-Za-z0-9_-]{1,64}$/.test(name))).toEqual([]);
      const nameOf = (start: string): string => names.find((name) => name.startsWith(start)) as string;
      const read = await client.callTool({
        name: nameOf("filesystem_read_text_file"),
        arguments: { path: join(world.files, "plan.txt") },
      });
      expect(read).toMatchObject({ content: [{ type: "text", text: "water the plants\n" }] });
      // What is always denied is not listed; who calls it all the same is told why.
      expect(names.filter((name) => name.includes("delete"))).toEqual([]);
      const denied = await client.callTool({ name: "memory.delete_entities", arguments: { entityNames: ["ada"] } });
      expect(denied.isError).toBe(true);
      expect(JSON.stringify(denied)).toContain('"rule":"nothing-is-destroyed"');
      const create = { name: nameOf("memory_create_entities"), arguments: NOTE };
      const challenged = await client.callTool(create);
      expect(challenged.isError).toBe(true);
      expect(JSON.stringify(challenged)).toContain('"rule":"ask-unless-it-reads"');
      const [open] = JSON.parse(run("--json", "approvals", "ls").stdout);
      expect(open).toMatchObject({ tool: "memory.create_entities", state: "pending" });
      expect(JSON.stringify(challenged.content)).toContain(open.id);
      expect(JSON.stringify(challenged)).toMatch(/"approval_url":"http:\/\/127\.0\.0\.1:\d+\/approve\/ch_/);
      expect(run("approve", open.id).code).toBe(0);
      const done = await client.callTool(create);
      expect(done.isError).not.toBe(true);
      const graph = await client.callTool({ name: nameOf("memory_read_graph"), arguments: {} });
      expect(JSON.stringify(graph.content)).toContain("likes tea");
      // One approval, one call.
      expect(await client.callTool(create)).toMatchObject({ isError: true });
    } finally {
      await client.close();
    }
  });

  it("a gateway on HTTP serves beside the one that the client starts, each with a ledger", async () => {
    const text = readFileSync(world.claude, "utf8").replace(/^\s*\/\/.*$/m, "");
    const { command, args } = (JSON.parse(text) as { mcpServers: { portcullis: Entry } }).mcpServers.portcullis;
    const beside = new Client(info);
    await beside.connect(new StdioClientTransport({ command, args, env: world.env(), stderr: "pipe" }));
    const gateway = await world.serve("--challenge-wait", "0.2");
    try {
      const client = new Client(info);
      await client.connect(new StreamableHTTPClientTransport(new URL(gateway.url)));
      const sum = await client.callTool({ name: "everything.get-sum", arguments: { a: 1, b: 2 } });
      expect(JSON.stringify(sum.content)).toContain("3");
      const thought = { thought: "hm", thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false };
      // Its server declares that it only reads.
      const thinking = await client.callTool({ name: "thinking.sequentialthinking", arguments: thought });
      expect(thinking.isError).not.toBe(true);
      // It only reads as well, and what it reads is the environment.
      const env = { name: "everything.get-env", arguments: {} };
      expect(await client.callTool(env)).toMatchObject({ isError: true });
      const all = JSON.parse(run("--json", "approvals", "ls", "--admin", gateway.admin).stdout) as {
        tool: string;
        id: string;
      }[];
      // What waits at the client's own gateway waits here too.
      expect(all.map(({ tool }) => tool).sort()).toEqual([env.name, "memory.create_entities"]);
      const open = all.find(({ tool }) => tool === env.name) as { id: string };
      expect(run("deny", open.id, "--admin", gateway.admin, "--reason", "not the environment").code).toBe(0);
      expect(JSON.stringify((await client.callTool(env)).content)).toContain("not the environment");
      expect((await beside.listTools()).tools.length).toBeGreaterThan(20);
      await client.close();
    } finally {
      await gateway.stop();
      await beside.close();
    }
  });

  it("audit verify accepts the records of the first hour", () => {
    const verified = run("--json", "audit", "verify");
    expect(verified).toMatchObject({ code: 0 });
    const { ok, ledgers } = JSON.parse(verified.stdout) as { ok: boolean; ledgers: { to: number }[] };
    expect(ok).toBe(true);
    expect(ledgers).toHaveLength(2);
    for (const { to } of ledgers) expect(to).toBeGreaterThan(3);
    const tail = run("audit", "tail", "-n", "50").stdout;
    expect(tail).toContain("nothing-is-destroyed");
  });

  it("disconnect restores every byte, and no credential was printed [H5]", () => {
    expect(run("disconnect", "claude-desktop", "--yes").code).toBe(0);
    expect(readFileSync(world.claude, "utf8")).toBe(before);
    expect(run("disconnect", "claude-desktop", "--yes").code).toBe(1);
    expect(said.join("").includes(TOKEN)).toBe(false);
  });
});
