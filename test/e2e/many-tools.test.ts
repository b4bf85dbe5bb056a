// One application's server lists thousands of tools; the others are served meanwhile.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Client } from "../../src/mcp/client/index.js";
import { type Deployment, deploy } from "./gateway-world.js";

const SERVER = `
  const count = Number(process.argv[2]);
  const send = (m) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\\n");
  require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params } = JSON.parse(line);
    const at = Number(params?.cursor ?? 0);
    const tool = (_, i) => ({ name: "tool_" + (at + i), description: "x".repeat(100),
      inputSchema: { type: "object", properties: { path: { type: "string" }, ["a" + (at + i)]: { type: "integer" } } } });
    if (method === "initialize") send({ id, result: { protocolVersion: "2025-11-25", serverInfo: { name: "s", version: "1" }, capabilities: { tools: {} } } });
    else if (method === "tools/list") send({ id, result: { tools: Array.from({ length: Math.min(1000, count - at) }, tool), ...(at + 1000 < count ? { nextCursor: String(at + 1000) } : {}) } });
    else if (method === "tools/call") send({ id, result: { content: [{ type: "text", text: "done" }] } });
    else if (id !== undefined) send({ id, error: { code: -32601, message: "no" } });
  });`;
const POLICY = `permit (principal, action, resource);
@id("paths") forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };`;

describe("a server with 5,000 tools", () => {
  let dir: string;
  let deployment: Deployment;
  const clients: Client[] = [];
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), "portcullis-many-tools-"));
    writeFileSync(join(dir, "server.cjs"), SERVER);
    deployment = await deploy(POLICY);
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) await client.close();
    await deployment.close();
    rmSync(dir, { recursive: true, force: true });
  });

  const clientOf = async (app: string, count: number): Promise<Client> => {
    const entry = { command: process.execPath, args: [join(dir, "server.cjs"), String(count)], noGuardrail: ["*"] };
    await deployment.put(app, { servers: { s: entry } });
    const client = await deployment.client(await deployment.key(app, "ann"));
    clients.push(client);
    return client;
  };

  it("a server with 5,000 tools is listed, pinned and put under policy while another application's calls are answered [H3]", async () => {
    const small = await clientOf("small", 3);
    await small.callTool("tool_1", {});
    let isOver = false;
    // The application is opened, and its server listed, by the first request.
    const large = clientOf("large", 5_000);
    const first = large
      .then((client) => client.callTool("tool_4999", { path: "/tmp" }))
      .finally(() => {
        isOver = true;
      });
    let answered = 0;
    while (!isOver) {
      await small.callTool("tool_1", {});
      answered++;
    }
    expect(JSON.stringify(await first)).toContain("done");
    expect(answered).toBeGreaterThan(10);
    const denied = await (await large).callTool("tool_1", { path: "/etc/passwd" });
    expect(denied).toMatchObject({ isError: true, structuredContent: { code: "POLICY_DENY" } });
  }, 60_000);
});
