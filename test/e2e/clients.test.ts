// Clients that nobody here wrote, in front of a gateway as its user starts it.

import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { type Serving, serve } from "./serving.js";

let gateway: Serving;
beforeAll(async () => {
  gateway = await serve();
});
afterAll(() => gateway.stop());

const ADD = { name: "math.add", arguments: { a: 1, b: 2 } };
const info = { name: "test", version: "1.0.0" };

describe("a gateway on embedded defaults serves", () => {
  it("a gateway on embedded defaults serves the official SDK v1: a permitted call, a denied call and a list of callable tools [G8 M8]", async () => {
    const client = new ClientV1(info);
    await client.connect(new HttpV1(new URL(gateway.url)));
    expect(await client.callTool(ADD)).toMatchObject({ structuredContent: { sum: 3 } });
    const denied = await client.callTool({ name: "shell.run", arguments: { command: "ls" } });
    expect(denied).toMatchObject({ isError: true, structuredContent: { code: "POLICY_DENY", rule: "no-shell" } });
    const invalid = await client.callTool({ name: "math.add", arguments: { a: 1 } });
    expect(invalid.isError).toBe(true);
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    expect(names).toContain("math.add");
    expect(names).not.toContain("shell.run");
    expect(await client.readResource({ uri: "demo://welcome" })).toMatchObject({
      contents: [{ uri: "demo://welcome" }],
    });
    await client.close();
  });

  it.each(["2026-07-28", "2025-11-25"])(
    "a gateway on embedded defaults serves the official SDK v2 in revision %s",
    async (revision) => {
      const versionNegotiation = revision === "2026-07-28" ? ({ mode: { pin: revision } } as const) : undefined;
      const client = new ClientV2(info, versionNegotiation ? { versionNegotiation } : undefined);
      await client.connect(new HttpV2(new URL(gateway.url)));
      expect(client.getNegotiatedProtocolVersion()).toBe(revision);
      expect(await client.callTool(ADD)).toMatchObject({ structuredContent: { sum: 3 } });
      const denied = await client.callTool({ name: "shell.run", arguments: { command: "ls" } });
      expect(denied).toMatchObject({ isError: true });
      await client.close();
    },
  );
});

describe("a gateway serves on other transports", () => {
  it("a gateway serves the WebSocket client of SDK v1", async () => {
    const served = await serve(["--ws-port", "0"]);
    try {
      // The SDK's client takes the global of browsers and of Node 22; on Node 20 the ws package stands in for it.
      globalThis.WebSocket ??= WebSocket as unknown as typeof globalThis.WebSocket;
      const client = new ClientV1(info);
      await client.connect(
        new WebSocketClientTransport(new URL(served.urls.find((url) => url.startsWith("ws:")) as string)),
      );
      expect(await client.callTool(ADD)).toMatchObject({ structuredContent: { sum: 3 } });
      await client.close();
    } finally {
      await served.stop();
    }
  });
});
