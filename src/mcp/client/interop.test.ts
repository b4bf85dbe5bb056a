// Our client against servers built with the official SDKs, in both eras, over every transport they have.

import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { JsonObject } from "../index.js";
import type { ClientTransport } from "../transports/index.js";
import type { Client } from "./client.js";
import { type ConnectTarget, connect } from "./connect.js";
import { until } from "./fixtures/scripted.js";
import { httpV1, httpV2, memoryV1, memoryV2, stopped } from "./fixtures/sdk-servers.mjs";
import type { ConnectOptions } from "./options.js";

const script = fileURLToPath(new URL("./fixtures/sdk-servers.mjs", import.meta.url));
const stdio = (...args: string[]): ConnectTarget => ({ command: process.execPath, args: [script, ...args] });

const open: { close(): Promise<void> }[] = [];
async function closeAll(): Promise<void> {
  for (const one of open.splice(0).reverse()) await one.close();
}

function kept<T extends { close(): Promise<void> }>(one: T): T {
  open.push(one);
  return one;
}

/** Their in-memory transport moves objects, ours moves texts. */
function adapted(theirs: Awaited<ReturnType<typeof memoryV1>>): ClientTransport {
  return {
    kind: "memory",
    async start(events) {
      theirs.onmessage = (message) => events.message(JSON.stringify(message));
      theirs.onclose = () => events.closed();
      await theirs.start();
    },
    async send(text) {
      await theirs.send(JSON.parse(text) as never);
      return { done: Promise.resolve() };
    },
    close: () => theirs.close(),
  };
}

const handlers: ConnectOptions["handlers"] = {
  elicitation: (_, { withDefaults }) => ({ action: "accept", content: withDefaults() }),
  sampling: () => ({ role: "assistant", model: "m", content: { type: "text", text: "thought" } as JsonObject }),
};

interface Case {
  name: string;
  revision: string;
  options?: ConnectOptions;
  target: () => Promise<ConnectTarget>;
  /** Without sessions a server cannot ask in the old era, and 2025-03-26 has no elicitation. */
  asks?: false;
  /** The server is in this process, and hears when a call is given up. */
  inProcess?: true;
}

const cases: Case[] = [
  { name: "SDK v1 over stdio", revision: "2025-11-25", target: async () => stdio("v1") },
  {
    name: "SDK v1 over HTTP with sessions",
    inProcess: true,
    revision: "2025-11-25",
    target: async () => kept(await httpV1()).url,
  },
  { name: "SDK v1 in memory", inProcess: true, revision: "2025-11-25", target: async () => adapted(await memoryV1()) },
  {
    name: "SDK v1 over HTTP, 2025-06-18",
    revision: "2025-06-18",
    options: { revision: "2025-06-18" },
    target: async () => kept(await httpV1()).url,
  },
  {
    name: "SDK v1 over stdio, 2025-03-26",
    revision: "2025-03-26",
    options: { revision: "2025-03-26" },
    target: async () => stdio("v1"),
    asks: false,
  },
  { name: "SDK v2 over stdio", revision: "2026-07-28", target: async () => stdio("v2") },
  { name: "SDK v2 over stdio, modern only", revision: "2026-07-28", target: async () => stdio("v2", "reject") },
  { name: "SDK v2 over HTTP", inProcess: true, revision: "2026-07-28", target: async () => kept(await httpV2()).url },
  {
    name: "SDK v2 over HTTP, modern only",
    revision: "2026-07-28",
    target: async () => kept(await httpV2("reject")).url,
  },
  { name: "SDK v2 in memory", inProcess: true, revision: "2026-07-28", target: async () => adapted(await memoryV2()) },
  {
    name: "SDK v2 over stdio in the old era",
    revision: "2025-11-25",
    options: { revision: "2025-11-25" },
    target: async () => stdio("v2"),
  },
  {
    name: "SDK v2 over HTTP in the old era, without sessions",
    revision: "2025-11-25",
    options: { revision: "2025-11-25" },
    target: async () => kept(await httpV2()).url,
    asks: false,
  },
];

// A busy machine takes its time to start a process; a probe that is not answered in time means the older era.
const timeouts = { discoveryMs: 60_000, connectMs: 120_000 };

describe.each(cases)("$name", ({ revision, options, target, asks, inProcess }) => {
  // One connection for all of them: starting a process costs more than everything else here.
  let client: Client;
  beforeAll(async () => {
    client = kept(await connect(await target(), { handlers, timeouts, ...options }));
  });
  afterAll(closeAll);

  it("speaks the best revision and serves tools, resources and prompts", async () => {
    expect(client.revision).toBe(revision);
    expect(client.server.serverInfo?.name).toMatch(/^sdk-v/);
    const tools = await client.listTools();
    expect(tools.map((tool) => tool.name)).toEqual(expect.arrayContaining(["echo", "drip", "fail", "greet"]));
    expect(await client.callTool("echo", { text: "héllo 世界" })).toMatchObject({ content: [{ text: "héllo 世界" }] });
    expect(await client.callTool("fail")).toMatchObject({ isError: true, content: [{ text: "it broke" }] });
    expect((await client.listResources()).map((resource) => resource.uri)).toContain("test://static");
    expect(await client.readResource("test://static")).toMatchObject({ contents: [{ text: "static" }] });
    expect((await client.listPrompts()).map((prompt) => prompt.name)).toEqual(["ask"]);
    expect(await client.getPrompt("ask", { about: "x" })).toMatchObject({
      messages: [{ content: { text: "About x" } }],
    });
    await expect(client.readResource("test://missing")).rejects.toMatchObject({ family: "protocol" });
    await client.ping();
    expect(client.stats).toEqual({ strayAnswers: 0, malformed: 0, unexpectedRequests: 0 });
  });

  it("reports progress, runs calls side by side, and stops a call that is given up", async () => {
    const many = await client.batchCalls(
      Array.from({ length: 20 }, (_, i) => ({ name: "echo", arguments: { text: `${i}` } })),
    );
    expect(many.map((one) => one.status === "fulfilled" && (one.value.content[0] as { text: string }).text)).toEqual(
      Array.from({ length: 20 }, (_, i) => `${i}`),
    );
    const stop = new AbortController();
    let last = 0;
    const call = client.callTool(
      "drip",
      {},
      {
        signal: stop.signal,
        onProgress: ({ progress }) => {
          last = progress;
          if (progress === 3) stop.abort();
        },
      },
    );
    await expect(call).rejects.toMatchObject({ code: "CANCELLED" });
    expect(last).toBe(3);
    if (inProcess) {
      await until(() => stopped.length > 0);
      expect(stopped).toEqual([true]);
    }
    stopped.length = 0;
    expect(await client.callTool("echo", { text: "still here" })).toMatchObject({ content: [{ text: "still here" }] });
  });

  if (asks === false) return;
  it("sends elicitation and sampling requests to the client", async () => {
    expect(await client.callTool("greet")).toMatchObject({ content: [{ text: "Hello, Ada" }] });
    expect(await client.callTool("sample")).toMatchObject({ content: [{ text: "thought" }] });
  });
});

describe("what only some of them have", () => {
  afterEach(closeAll);

  it("SDK v1: starts a session again that the server forgot, and reports lists that changed", async () => {
    const server = kept(await httpV1());
    const changed: string[] = [];
    const client = kept(await connect(server.url, { onListChanged: (kind) => changed.push(kind) }));
    await client.callTool("grow");
    await until(() => changed.includes("tools"));
    server.sessions.clear();
    expect(await client.callTool("echo", { text: "again" })).toMatchObject({ content: [{ text: "again" }] });
    expect(server.sessions.size).toBe(1);
    await client.close();
    expect(server.sessions.size).toBe(0);
  });

  it("SDK v2: listen streams, and headers that mirror parameters", async () => {
    const server = kept(await httpV2());
    const client = kept(await connect(server.url));
    const heard: object[] = [];
    const filter = { toolsListChanged: true, resourceSubscriptions: ["test://static"] };
    const subscription = await client.listen(filter, (change) => heard.push(change));
    expect(subscription.accepted).toMatchObject(filter);
    server.notify.toolsChanged();
    server.notify.resourceUpdated("test://static");
    server.notify.resourceUpdated("test://other");
    await until(() => heard.length >= 2);
    expect(heard).toEqual([{ kind: "tools" }, { kind: "resource", uri: "test://static" }]);
    await subscription.close();
    // Without having listed the tools, and so without knowing which headers they want.
    expect(await client.callTool("region", { region: "eu" })).toMatchObject({ content: [{ text: "in eu" }] });
    expect(await client.callTool("region", { region: "süd" })).toMatchObject({ content: [{ text: "in süd" }] });
  });
});
