// A workflow over servers of others: a gateway of applications, one of which has agents that delegate.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { official } from "../../src/gateway/fixtures/world.js";
import { connect, McpError } from "../../src/mcp/client/index.js";
import { handOnDelegation, mintDelegation, spendDelegation } from "../../src/policy/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { type GatewayRuntime, startGateway } from "../../src/runtime/start.js";
import { type WorkflowInForce, workflowInForce } from "../../src/runtime/workflow/serving.js";

const WORKFLOW = `
servers:
  everything:
    tools:
      - { name: echo, inputSchema: { type: object, properties: { message: { type: string } }, required: [message] } }
      - { name: get-sum, inputSchema: { type: object, properties: { a: { type: number }, b: { type: number } }, required: [a, b] } }
  memory: { tools: [{ name: read_graph }, { name: delete_entities }] }
agents:
  boss: { servers: [everything, memory] }
  clerk: { servers: [everything, memory], allow: [everything.*] }
delegations:
  - { from: boss, to: clerk, tools: [everything.*], arguments: { everything.echo: { properties: { message: { maxLength: 5 } } } } }
`;

const root = mkdtempSync(join(tmpdir(), "portcullis-delegation-apps-"));
let runtime: GatewayRuntime;
let workflow: WorkflowInForce;

beforeAll(async () => {
  const file = join(root, "workflow.yaml");
  writeFileSync(file, WORKFLOW);
  workflow = await workflowInForce({ file, stateDir: root, app: "desk" });
  runtime = await startGateway({
    stateDir: root,
    workflow,
    identity: keysOrLocal({ localApp: "desk", isLoopback: true }),
    modules: [],
    http: { host: "127.0.0.1", port: 0 },
    telemetry: { log: { level: "critical" } },
  });
  const servers = { everything: official("server-everything"), memory: official("server-memory") };
  await runtime.storage.applications.put("desk", { servers }, "test");
});

afterAll(async () => {
  await runtime?.close();
  rmSync(root, { recursive: true, force: true });
});

const as = (token: string) =>
  connect(runtime.listeners[0]?.url as string, {
    headers: () => ({ "portcullis-delegation": spendDelegation(token) }),
    timeouts: { discoveryMs: 30_000 },
  });

describe("two holders of delegations to one agent", () => {
  it("two holders of delegations to one agent have sessions of their own", async () => {
    const dir = join(root, "holders");
    const own = await workflowInForce({ file: join(root, "workflow.yaml"), stateDir: dir, app: "desk" });
    const gateway = await startGateway({
      stateDir: dir,
      workflow: own,
      identity: keysOrLocal({ localApp: "local", isLoopback: false }),
      modules: [],
      http: { host: "127.0.0.1", port: 0 },
      telemetry: { log: { level: "critical" } },
    });
    try {
      const { storage } = gateway;
      await storage.applications.put("desk", { servers: {} }, "test");
      const keyOf = async (name: string): Promise<string> =>
        (await createKey(storage.keys, { app: "desk", name, permissions: ["invoke(*)", "list"] }, "test")).token;
      const [alice, bob] = [await keyOf("alice"), await keyOf("bob")];
      const delegated = handOnDelegation(mintDelegation(own.keys, { agent: "boss", app: "desk" }), { to: "clerk" });
      const send = (key: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
        fetch(gateway.listeners[0]?.url as string, {
          method: "POST",
          headers: {
            authorization: `Bearer ${key}`,
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            "portcullis-delegation": spendDelegation(delegated),
            ...headers,
          },
          body: JSON.stringify({ jsonrpc: "2.0", ...body }),
        });
      const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
      const session = (await send(alice, { id: 1, method: "initialize", params })).headers.get("mcp-session-id");
      const mine = { "mcp-session-id": String(session), "mcp-protocol-version": "2025-11-25" };
      await send(alice, { method: "notifications/initialized" }, mine);
      expect((await send(alice, { id: 2, method: "tools/list", params: {} }, mine)).status).toBe(200);
      expect((await send(bob, { id: 3, method: "tools/list", params: {} }, mine)).status).toBe(404);
    } finally {
      await gateway.close();
    }
  });
});

describe("a workflow over servers of others", () => {
  const boss = (): string => mintDelegation(workflow.keys, { agent: "boss", app: "desk" });

  it("a workflow over upstream servers shows an agent what reached it, runs what it may, and denies the rest", async () => {
    const chief = await as(boss());
    const names = (await chief.listTools()).map(({ name }) => name).sort();
    expect(names).toEqual(["everything.echo", "everything.get-sum", "memory.delete_entities", "memory.read_graph"]);
    await chief.close();
    const clerk = await as(handOnDelegation(boss(), { to: "clerk" }));
    expect((await clerk.listTools()).map(({ name }) => name).sort()).toEqual(["everything.echo", "everything.get-sum"]);
    const said = await clerk.callTool("everything.echo", { message: "short" });
    expect(said.content).toMatchObject([{ text: "Echo: short" }]);
    const denied = await clerk.callTool("everything.echo", { message: "too long" });
    expect(denied.structuredContent).toMatchObject({ rule: "workflow.scope" });
    await expect(clerk.callTool("memory.read_graph", {})).rejects.toThrow("there is no tool");
    await clerk.close();
  });

  it("a workflow over upstream servers refuses callers of its application without a delegation and with one of another workflow", async () => {
    await expect(connect(runtime.listeners[0]?.url as string)).rejects.toThrow(McpError);
    const foreign = mintDelegation(workflow.keys, { agent: "boss", app: "other" });
    await expect(as(foreign)).rejects.toThrow("another application");
  });
});
