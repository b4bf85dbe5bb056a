// Processes of servers: started where and when they are used, stopped when they are not, with no call lost.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { openStorage, type ServerEntry } from "../storage/index.js";
import { type GatewayRuntime, startGateway } from "./start.js";

const APPLICATIONS = 4;
let dir: string;
const running: GatewayRuntime[] = [];

const SERVER = `
import { createInterface } from "node:readline";
const tools = [{ name: "pid", description: "the process", inputSchema: { type: "object" } }];
const resources = [{ uri: "note://one", name: "one" }];
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {}, resources: {} }, serverInfo: { name: "s", version: "1" },
  }),
  "tools/list": () => ({ tools }),
  "resources/list": () => ({ resources }),
  "resources/templates/list": () => ({ resourceTemplates: [] }),
  "tools/call": () => ({ content: [{ type: "text", text: String(process.pid) }] }),
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = answers[method]?.(params ?? {});
  const error = { code: -32601, message: "unknown" };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...(result ? { result } : { error }) }));
});
`;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-start-"));
  writeFileSync(join(dir, "server.mjs"), SERVER);
});
afterEach(async () => {
  for (const runtime of running.splice(0)) await runtime.close();
  rmSync(dir, { recursive: true, force: true });
});

async function put(more: Partial<ServerEntry> = {}): Promise<void> {
  const storage = await openStorage(`sqlite:${join(dir, "store.db")}`);
  const entry = {
    command: process.execPath,
    args: [join(dir, "server.mjs")],
    noGuardrail: ["*"],
    sandbox: "off" as const,
  };
  for (let i = 0; i < APPLICATIONS; i++) {
    await storage.applications.put(`app-${i}`, { servers: { tool: { ...entry, ...more } } }, "test");
  }
  await storage.close();
}

async function start(name: string, idleStop?: number): Promise<GatewayRuntime> {
  const stateDir = join(dir, name);
  mkdirSync(join(stateDir, "policy"), { recursive: true });
  writeFileSync(join(stateDir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const runtime = await startGateway({
    stateDir,
    storage: `sqlite:${join(dir, "store.db")}`,
    sealKey: `file:${join(dir, "seal.key")}`,
    replica: name,
    http: { host: "127.0.0.1", port: 0 },
    telemetry: { log: { level: "critical" } },
    idleStop,
    identity: async () => ({
      isLocalAccessOn: false,
      identify: ({ headers }) => ({ app: String(headers?.["x-app"]), agent: "a", scope: [], via: "key" }),
      close: async () => {},
    }),
  });
  running.push(runtime);
  return runtime;
}

async function ask(runtime: GatewayRuntime, app: number, method: string, params: object = {}): Promise<any> {
  const { name } = params as { name?: string };
  const response = await fetch(runtime.listeners[0]?.url as string, {
    method: "POST",
    headers: {
      "x-app": `app-${app}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(name === undefined ? {} : { "mcp-name": name }),
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method,
      params: {
        ...params,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "t", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": {},
        },
      },
    }),
  });
  return JSON.parse((await response.text()).replace(/^[\s\S]*?data: /, ""));
}

const call = async (runtime: GatewayRuntime, app: number): Promise<number> => {
  const answer = await ask(runtime, app, "tools/call", { name: "pid", arguments: {} });
  return Number(answer.result?.content?.[0]?.text ?? Number.NaN);
};
const tools = async (runtime: GatewayRuntime, app: number): Promise<string[]> =>
  (await ask(runtime, app, "tools/list")).result.tools.map(({ name }: { name: string }) => name);
/** Which applications have a running process at this replica. */
const processes = (runtime: GatewayRuntime): string[] =>
  [...runtime.applications.open]
    .filter(({ upstreams }) => upstreams.get("tool")?.health().pid !== undefined)
    .map(({ id }) => id)
    .sort();

it("starts a server at its first call, and only at the replica that is called", async () => {
  await put();
  const one = await start("one");
  // Nothing is known of the servers yet: the first listing starts them, and what it shows is kept in the store.
  for (let app = 0; app < APPLICATIONS; app++) expect(await tools(one, app)).toContain("pid");
  expect(processes(one)).toHaveLength(APPLICATIONS);
  const two = await start("two");
  for (let app = 0; app < APPLICATIONS; app++) expect(await tools(two, app)).toContain("pid");
  expect(processes(two)).toEqual([]);
  expect(await call(two, 1)).toBeGreaterThan(0);
  expect(await call(two, 3)).toBeGreaterThan(0);
  expect(processes(two)).toEqual(["app-1", "app-3"]);
  // A change of the document of another kind starts nothing.
  const storage = two.storage.applications;
  const before = (await storage.get("app-0"))?.document ?? {};
  await storage.put("app-0", { ...before, description: "another" }, "test");
  await vi.waitFor(
    () => expect(two.applications.peek("app-0")?.application.document.description).toBe("another"),
    20_000,
  );
  expect(await tools(two, 0)).toContain("pid");
  expect(processes(two)).toEqual(["app-1", "app-3"]);
}, 60_000);

it("lists the resources of a server that is not started at this replica", async () => {
  await put();
  const one = await start("one");
  expect(await tools(one, 0)).toContain("pid");
  const two = await start("two");
  expect(await tools(two, 0)).toContain("pid");
  const { result } = await ask(two, 0, "resources/list");
  expect(result.resources).toMatchObject([{ name: "one" }]);
  expect(processes(two)).toEqual([]);
}, 60_000);

it("stops a server that is not used, starts it again for the next call, and loses no call", async () => {
  await put();
  const one = await start("one", 0.15);
  const first = await call(one, 0);
  await vi.waitFor(() => expect(processes(one)).toEqual([]), 60_000);
  await vi.waitFor(() => expect(() => process.kill(first, 0)).toThrow(/ESRCH/), 60_000);
  expect(await tools(one, 0)).toContain("pid");
  const second = await call(one, 0);
  expect(second).not.toBe(first);
  // Pauses around the time after which it is stopped: some calls meet it while it is being stopped.
  const pids = new Set<number>([second]);
  for (let i = 0; i < 12; i++) {
    await new Promise((resolve) => setTimeout(resolve, 140 + 2 * i));
    const pid = await call(one, 0);
    expect(pid).toBeGreaterThan(0);
    pids.add(pid);
  }
  expect(one.applications.peek("app-0")?.upstreams.get("tool")?.health().counts.failures).toBe(0);
}, 60_000);

it("starts a server with its application and keeps it when its entry says so", async () => {
  await put({ start: "eager" });
  const one = await start("one", 0.1);
  expect(await tools(one, 0)).toContain("pid");
  const two = await start("two", 0.1);
  expect(await tools(two, 0)).toContain("pid");
  await vi.waitFor(() => expect(processes(two)).toEqual(["app-0"]), 60_000);
  const pid = await call(two, 0);
  await new Promise((resolve) => setTimeout(resolve, 400));
  expect(await call(two, 0)).toBe(pid);
}, 60_000);
