// Real servers: the official SDKs of both versions, and the reference servers from npm, over every transport they have.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { httpV1, httpV2, stopped } from "../mcp/client/fixtures/sdk-servers.mjs";
import { Fault, type JsonObject } from "../mcp/index.js";
import { createDialer } from "./dialer.js";
import { cancellation, closeAll, faultOf, textOf, tool, upstream } from "./fixtures/calling.js";
import { ServerProcess } from "./process/server-process.js";
import type { CallHooks, Upstream, UpstreamTarget } from "./types.js";

const SDK = fileURLToPath(new URL("../mcp/client/fixtures/sdk-servers.mjs", import.meta.url));
const dialer = createDialer({ allow: ["127.0.0.1", "localhost"] });
/** On a busy machine a server may take its time to start, which is not silence. */
const timeouts = { discoverMs: 30_000, startMs: 60_000 };
const clientCapabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };

const open: { close(): Promise<unknown> }[] = [];
async function endAll(): Promise<void> {
  await closeAll();
  for (const one of open.splice(0)) await one.close();
}
function kept<T extends { close(): Promise<unknown> }>(one: T): T {
  open.push(one);
  return one;
}

const stdio = (...args: string[]): UpstreamTarget => ({ transport: "stdio", command: process.execPath, args });
const http = (url: string): UpstreamTarget => ({ transport: "http", url });

const answers: CallHooks = {
  ask: async (method): Promise<JsonObject> =>
    method === "elicitation/create"
      ? { action: "accept", content: { name: "Ada" } }
      : { role: "assistant", model: "m", content: { type: "text", text: "thought" } },
};

interface Case {
  name: string;
  revision: string;
  demanded?: string;
  target: () => Promise<UpstreamTarget>;
  /** Without sessions a server cannot send client requests in the old era. */
  asks?: false;
  inProcess?: true;
}

const cases: Case[] = [
  { name: "SDK v1 over stdio", revision: "2025-11-25", target: async () => stdio(SDK, "v1") },
  {
    name: "SDK v1 over HTTP",
    revision: "2025-11-25",
    inProcess: true,
    target: async () => http(kept(await httpV1()).url),
  },
  { name: "SDK v2 over stdio", revision: "2026-07-28", target: async () => stdio(SDK, "v2") },
  {
    name: "SDK v2 over HTTP",
    revision: "2026-07-28",
    inProcess: true,
    target: async () => http(kept(await httpV2()).url),
  },
  {
    name: "SDK v2 over HTTP in the old era",
    revision: "2025-11-25",
    demanded: "2025-11-25",
    target: async () => http(kept(await httpV2()).url),
    asks: false,
  },
];

describe.each(cases)("$name", ({ revision, demanded, target, asks, inProcess }) => {
  let server: Upstream;
  beforeAll(async () => {
    const pinned = demanded === undefined ? {} : { revision: demanded };
    server = upstream({ name: "sdk", target: await target(), dialer, timeouts, clientCapabilities, ...pinned });
  });
  afterAll(endAll);

  it("offers everything and is called in its best revision", async () => {
    const catalogue = await server.catalogue();
    expect(catalogue.revision).toBe(revision);
    expect(catalogue.serverInfo?.name).toMatch(/^sdk-v/);
    expect(catalogue.tools.map((each) => each.name)).toEqual(expect.arrayContaining(["echo", "drip", "fail", "greet"]));
    expect(catalogue.resources.map((each) => each.uri)).toContain("test://static");
    expect(catalogue.prompts.map((each) => each.name)).toEqual(["ask"]);
    expect(textOf(await server.request(tool("echo", { text: "héllo 世界" })))).toBe("héllo 世界");
    const read = {
      method: "resources/read",
      params: '{"uri":"test://static"}',
      name: "test://static",
      timeoutMs: 5_000,
    };
    expect(await server.request(read)).toMatchObject({ value: { contents: [{ text: "static" }] } });
    const missing = { ...read, params: '{"uri":"test://missing"}', name: "test://missing" };
    expect(await server.request(missing)).toMatchObject({ kind: "error" });
    expect(server.health()).toMatchObject({
      circuit: "closed",
      counts: { strayAnswers: 0, malformed: 0, failures: 0, errors: 1 },
    });
  });

  it("reports progress, runs calls side by side, and stops one that is given up", async () => {
    const many = await Promise.all(
      Array.from({ length: 40 }, (_, n) => server.request(tool("echo", { text: `${n}` }))),
    );
    expect(many.map(textOf)).toEqual(Array.from({ length: 40 }, (_, n) => `${n}`));
    const { cancel, stop } = cancellation();
    const seen: JsonObject[] = [];
    const hooks: CallHooks = {
      progress: (params) => {
        if (seen.push(params) === 3) stop(new Fault("Cancelled", "enough"));
      },
    };
    expect(await faultOf(server.request(tool("drip", {}, { cancel, hooks })))).toMatchObject({ type: "Cancelled" });
    expect(seen.map((params) => params.progress)).toEqual([1, 2, 3]);
    if (inProcess) await expect.poll(() => stopped).toEqual([true]);
    stopped.length = 0;
    expect(textOf(await server.request(tool("echo", { text: "still here" })))).toBe("still here");
  });

  it.skipIf(asks === false)("asks the person and the model behind the caller", async () => {
    // On a connection that they share, what is asked after a call was given up could be for that one.
    const fresh = upstream({ name: "sdk", target: await target(), dialer, timeouts, clientCapabilities });
    const capabilities = JSON.stringify(clientCapabilities);
    const first = await fresh.request(tool("greet", {}, { hooks: answers, capabilities }));
    if (revision !== "2026-07-28") {
      expect(textOf(first)).toBe("Hello, Ada");
      expect(textOf(await fresh.request(tool("sample", {}, { hooks: answers })))).toBe("thought");
      return;
    }
    expect(first).toMatchObject({ value: { resultType: "input_required", inputRequests: { who: {} } } });
    const params =
      '{"arguments":{},"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"name":"greet"}';
    expect(textOf(await fresh.request({ ...tool("greet", {}, { capabilities }), params }))).toBe("Hello, Ada");
  });
});

describe("over HTTP", () => {
  afterEach(endAll);

  it("starts a new session when the server forgot the old one, reports changes, and ends it at last", async () => {
    const served = kept(await httpV1());
    const server = upstream({ name: "v1", target: http(served.url), dialer });
    const changes: unknown[] = [];
    server.onChange((change) => changes.push(change));
    await server.request(tool("grow"));
    await expect.poll(() => changes).toContain("tools");
    served.sessions.clear();
    changes.length = 0;
    const both = await Promise.all([1, 2].map((n) => server.request(tool("echo", { text: `${n}` }))));
    expect(both.map(textOf)).toEqual(["1", "2"]);
    expect(served.sessions.size).toBe(1);
    // Lists that were announced a moment ago are announced a moment later.
    await expect.poll(() => new Set(changes)).toEqual(new Set(["tools", "resources", "prompts"]));
    await server.close();
    expect(served.sessions.size).toBe(0);
  });

  it("a modern server reports changes while there is a subscriber", async () => {
    const served = kept(await httpV2());
    const server = upstream({ name: "v2", target: http(served.url), dialer });
    const changes: unknown[] = [];
    server.onChange((change) => changes.push(change));
    const unwatch = await server.watch("test://static");
    served.notify.toolsChanged();
    served.notify.resourceUpdated("test://static");
    served.notify.resourceUpdated("test://other");
    await expect.poll(() => changes).toEqual(["tools", { resource: "test://static" }]);
    await unwatch();
    served.notify.resourceUpdated("test://static");
    served.notify.toolsChanged();
    await expect.poll(() => changes.length).toBe(3);
    expect(changes[2]).toBe("tools");
  });

  it("parameters are mirrored into headers where the schema says so", async () => {
    const served = kept(await httpV2());
    const server = upstream({ name: "v2", target: http(served.url), dialer });
    const call = tool("region", { region: "süd" }, { headers: { "mcp-param-Region": "süd" } });
    expect(textOf(await server.request(call))).toBe("in süd");
  });
});

const require = createRequire(import.meta.url);
const entry = (name: string): string =>
  join(require.resolve(`@modelcontextprotocol/server-${name}/package.json`), "../dist/index.js");

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** The everything server on a port. */
async function everything(transport: string): Promise<number> {
  const port = await freePort();
  const target = { transport: "stdio", command: process.execPath, args: [entry("everything"), transport] } as const;
  const options = { leaveMs: 1, graceMs: 500, stderrBytes: 4_096 };
  const server = await ServerProcess.start({ ...target, env: { PORT: String(port) } }, options);
  kept({ close: () => server.stop() });
  await expect.poll(() => server.stderrTail).toMatch(/port \d+/);
  return port;
}

describe("the reference servers from npm", () => {
  afterEach(endAll);

  it.each(["stdio", "http", "sse", "sse, found out"] as const)("everything, over %s", async (transport) => {
    const target =
      transport === "stdio"
        ? stdio(entry("everything"))
        : transport === "http"
          ? http(`http://127.0.0.1:${await everything("streamableHttp")}/mcp`)
          : ({
              transport: transport === "sse" ? transport : "http",
              url: `http://127.0.0.1:${await everything("sse")}/sse`,
            } as const);
    const server = upstream({ name: "everything", target, dialer, timeouts, clientCapabilities });
    const catalogue = await server.catalogue();
    expect(catalogue.tools.length).toBeGreaterThan(10);
    expect(catalogue.prompts.length).toBeGreaterThan(2);
    expect(catalogue.resourceTemplates.length).toBeGreaterThan(0);
    expect(textOf(await server.request(tool("get-sum", { a: 2, b: 3 })))).toContain("5");
    const progress: JsonObject[] = [];
    const hooks = { progress: (params: JsonObject) => progress.push(params) };
    await server.request(tool("trigger-long-running-operation", { duration: 0.2, steps: 4 }, { hooks }));
    expect(progress.map((params) => params.progress)).toEqual([1, 2, 3, 4]);
    // It adds this tool when it has heard what the client can do.
    const sampled = await server.request(tool("trigger-sampling-request", { prompt: "?" }, { hooks: answers }));
    expect(textOf(sampled)).toContain("thought");
    expect(server.health()).toMatchObject({ circuit: "closed", counts: { failures: 0, malformed: 0 } });
  });

  it("filesystem, memory and sequential-thinking", async () => {
    const directory = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-upstream-")));
    writeFileSync(join(directory, "note.txt"), "hello");
    try {
      const files = upstream({ name: "filesystem", target: stdio(entry("filesystem"), directory) });
      expect(textOf(await files.request(tool("read_text_file", { path: join(directory, "note.txt") })))).toBe("hello");
      expect(await files.request(tool("read_text_file", { path: "/etc/passwd" }))).toMatchObject({
        value: { isError: true },
      });
      const memory = upstream({
        name: "memory",
        target: {
          ...stdio(entry("memory")),
          env: { MEMORY_FILE_PATH: join(directory, "memory.json") },
        } as UpstreamTarget,
      });
      const entities = [{ name: "Ada", entityType: "person", observations: ["counts"] }];
      await memory.request(tool("create_entities", { entities }));
      expect(textOf(await memory.request(tool("read_graph")))).toContain("Ada");
      const thinking = upstream({ name: "sequential-thinking", target: stdio(entry("sequential-thinking")) });
      const [only] = (await thinking.catalogue()).tools;
      const thought = { thought: "one", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
      expect(await thinking.request(tool(String(only?.name), thought))).toMatchObject({ kind: "result" });
    } finally {
      await closeAll();
      rmSync(directory, { recursive: true });
    }
  });
});
