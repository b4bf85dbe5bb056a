// Our own server behind our own gateway: every revision over every network transport, and each of them lost.

import { type AddressInfo, createServer as createTcp } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { z } from "zod";
import { createServer, permitAll, type Server } from "../server.js";
import { createTelemetry } from "../telemetry/index.js";
import { createDialer } from "./dialer.js";
import { closeAll, faultOf, textOf, tool, upstream } from "./fixtures/calling.js";
import type { UpstreamTarget } from "./types.js";

const dialer = createDialer({ allow: ["127.0.0.1"] });
const telemetry = createTelemetry({ log: { level: "emergency" }, env: {} });
const open: { close(): unknown }[] = [];
afterEach(async () => {
  await closeAll();
  for (const one of open.splice(0).reverse()) await one.close();
});

function ownServer(): Server {
  const server = createServer("own", { policy: permitAll, telemetry })
    .tool("echo", "Says it again", z.object({ text: z.string() }), ({ text }) => text, { noGuardrailRequired: true })
    .tool(
      "ask",
      "Asks who",
      z.object({}),
      async (_, context) => {
        const requestedSchema = { type: "object", properties: { name: { type: "string" } } };
        const answer = await context.elicit("who", { message: "Who?", requestedSchema });
        return `Hello, ${(answer.content as { name: string }).name}`;
      },
      { noGuardrailRequired: true },
    );
  open.push(server);
  return server;
}

function targetOf(transport: "http" | "tcp" | "websocket", url: string): UpstreamTarget {
  if (transport !== "tcp") return { transport, url };
  const { hostname, port } = new URL(url);
  return { transport, host: hostname, port: Number(port) };
}

const clientCapabilities = { elicitation: { form: {} } };
const ask = async () => ({ action: "accept", content: { name: "Ada" } });

describe.each(["http", "tcp", "websocket"] as const)("over %s", (transport) => {
  it.each(["2026-07-28", "2025-11-25", "2025-03-26"])("in %s everything works", async (revision) => {
    const { url } = await ownServer().listen({ transport, port: 0 });
    const server = upstream({ name: "own", target: targetOf(transport, url), dialer, revision, clientCapabilities });
    expect((await server.catalogue()).tools.map((each) => each.name)).toEqual(["echo", "ask"]);
    const many = await Promise.all(
      Array.from({ length: 30 }, (_, n) => server.request(tool("echo", { text: `é\u2028${n}` }))),
    );
    expect(many.map(textOf)).toEqual(Array.from({ length: 30 }, (_, n) => `é\u2028${n}`));
    const capabilities = JSON.stringify(clientCapabilities);
    const asked = await server.request(tool("ask", {}, { hooks: { ask }, capabilities }));
    if (revision === "2026-07-28") expect(asked).toMatchObject({ value: { resultType: "input_required" } });
    if (revision === "2025-11-25") expect(textOf(asked)).toBe("Hello, Ada");
    expect(server.health()).toMatchObject({ transport, revision, counts: { strayAnswers: 0, malformed: 0 } });
  });
});

describe("a connection that is lost", () => {
  it("a lost TCP connection fails its calls and is made again by the next call", async () => {
    let accepted = 0;
    const raw = createTcp((socket) => {
      accepted++;
      socket.on("error", () => {});
      socket.on("data", (data) => {
        for (const line of String(data).split("\n").filter(Boolean)) {
          const { id, method, params } = JSON.parse(line) as { id: number; method: string; params: { name: string } };
          if (params?.name === "drop") socket.destroy();
          else if (id !== undefined) socket.write(`${answerTo(id, method)}\n`);
        }
      });
    });
    await new Promise<void>((resolve) => raw.listen(0, "127.0.0.1", resolve));
    open.push({ close: () => new Promise((resolve) => raw.close(resolve)) });
    const { port } = raw.address() as AddressInfo;
    const server = upstream({ name: "tcp", target: { transport: "tcp", host: "127.0.0.1", port }, dialer });
    expect(await server.request(tool("x"))).toMatchObject({ kind: "result" });
    expect(await faultOf(server.request(tool("drop")))).toMatchObject({
      type: "IoError",
      detail: { extra: { delivered: true } },
    });
    expect(await server.request(tool("x"))).toMatchObject({ kind: "result" });
    expect(accepted).toBe(2);
    expect(server.health().restarts).toBe(1);
  });

  it("a WebSocket connection is closed for an answer over the limit or a binary frame", async () => {
    const wss = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    await new Promise<void>((resolve) => wss.once("listening", resolve));
    open.push({ close: () => new Promise((resolve) => wss.close(resolve)) });
    wss.on("connection", (ws) =>
      ws.on("message", (data) => {
        const { id, method, params } = JSON.parse(String(data)) as {
          id: number;
          method: string;
          params: { name: string };
        };
        if (params?.name === "big") ws.send("x".repeat(200_000));
        else if (params?.name === "binary") ws.send(Buffer.from([1, 2, 3]));
        if (id !== undefined) ws.send(answerTo(id, method));
      }),
    );
    const { port } = wss.address() as AddressInfo;
    const target = { transport: "websocket", url: `ws://127.0.0.1:${port}/` } as const;
    const server = upstream({ name: "ws", target, dialer, limits: { maxMessageBytes: 100_000 } });
    expect(await server.request(tool("binary"))).toMatchObject({ kind: "result" });
    expect(server.health().counts.malformed).toBe(1);
    expect(await faultOf(server.request(tool("big")))).toMatchObject({ type: "IoError" });
    expect(await server.request(tool("x"))).toMatchObject({ kind: "result" });
  });

  it("a connection that is lost is not made at all where the dialer says no", async () => {
    const targets: UpstreamTarget[] = [
      { transport: "websocket", url: "ws://localhost:8080/" },
      { transport: "sse", url: "http://localhost:8080/" },
      { transport: "tcp", host: "localhost", port: 8080 },
    ];
    for (const target of targets) {
      const server = upstream({ name: "inside", target, dialer: createDialer() });
      expect(await faultOf(server.request(tool("x"))), target.transport).toMatchObject({ type: "PolicyDeny" });
    }
  });

  it("needs an address that makes sense, without a password in it", async () => {
    for (const url of ["ftp://x/", "nonsense", "http://user:pass@x/"]) {
      const server = upstream({ name: "odd", target: { transport: "http", url }, dialer });
      expect(await faultOf(server.start()), url).toMatchObject({ type: "Unavailable" });
    }
  });
});

function answerTo(id: number, method: string): string {
  if (method === "server/discover")
    return JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: "?" } });
  const result = method === "initialize" ? { protocolVersion: "2025-11-25", capabilities: {} } : { content: [] };
  return JSON.stringify({ jsonrpc: "2.0", id, result });
}
