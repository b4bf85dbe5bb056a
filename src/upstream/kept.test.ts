// What a server makes the gateway keep is charged to its application by what it costs in memory.

import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { ByteBudget, type JsonObject, type JsonValue } from "../mcp/index.js";
import { createDialer } from "./dialer.js";
import { closeAll, faultOf, textOf, tool, upstream } from "./fixtures/calling.js";
import { type Asked, DISCOVERED, type RawHttp, rawHttp } from "./fixtures/raw-http.js";

const MIB = 1024 * 1024;
const dialer = createDialer({ allow: ["127.0.0.1"] });
const open: RawHttp[] = [];
const sockets: WebSocketServer[] = [];
afterEach(async () => {
  await closeAll();
  for (const each of open.splice(0)) await each.close();
  for (const each of sockets.splice(0)) {
    for (const client of each.clients) client.terminate();
    each.close();
  }
});

function emptyArrays(number: number): JsonValue[] {
  return Array.from({ length: number }, () => []);
}

/** Lists of so many pages, each with one tool with so many empty arrays; a call is answered with as many as it says. */
async function listing(pages: () => number, arrays: number): Promise<string> {
  const raw = await rawHttp((asked: Asked) => {
    if (asked.method === "server/discover") return asked.result({ ...DISCOVERED, capabilities: { tools: {} } });
    if (asked.method === "tools/list") {
      const page = Number((asked.params as JsonObject).cursor ?? 0);
      const tools = [{ name: `t${page}`, inputSchema: { type: "object", default: emptyArrays(arrays) } }];
      return asked.result({
        tools,
        resultType: "complete",
        ...(page + 1 < pages() ? { nextCursor: `${page + 1}` } : {}),
      });
    }
    const { number } = ((asked.params as JsonObject).arguments ?? {}) as { number?: number };
    asked.result({ content: [], structuredContent: { all: emptyArrays(number ?? 0) }, resultType: "complete" });
  });
  open.push(raw);
  return raw.url;
}

describe("the lists of a server", () => {
  it("the lists of a server are charged by their values, until there are other lists or the server is gone [U12]", async () => {
    const budget = new ByteBudget(64 * MIB);
    let pages = 10;
    const url = await listing(() => pages, 1_000);
    const server = upstream({ name: "s", target: { transport: "http", url }, dialer, budget });
    await server.catalogue();
    // 10,000 empty arrays are 30 kB of text, and took 350 kB of memory when that was measured.
    expect(budget.used).toBeGreaterThan(350_000);
    expect(budget.used).toBeLessThan(3 * MIB);
    pages = 1;
    await server.close();
    expect(budget.used).toBe(0);
  });

  it("the lists of a server are refused where their values cost more than lists may, however short their text is", async () => {
    const url = await listing(() => 1_000, 10_000);
    const server = upstream({ name: "s", target: { transport: "http", url }, dialer });
    await expect(server.catalogue()).rejects.toThrow("bytes in its lists");
  });

  it("the lists of a server are refused where the application may not keep so much, and then cost nothing", async () => {
    const budget = new ByteBudget(MIB);
    const url = await listing(() => 100, 1_000);
    const server = upstream({ name: "s", target: { transport: "http", url }, dialer, budget });
    await expect(server.catalogue()).rejects.toThrow("more than its application may keep");
    expect(budget.used).toBe(0);
  });
});

it("refuses an answer with more values than can be read in a moment, and lists may have more", async () => {
  const url = await listing(() => 1, 100_000);
  const server = upstream({ name: "s", target: { transport: "http", url }, dialer });
  expect((await server.catalogue()).tools).toHaveLength(1);
  expect(await server.request(tool("t0", { number: 10_000 }))).toMatchObject({ kind: "result" });
  expect(await faultOf(server.request(tool("t0", { number: 60_000 })))).toMatchObject({
    message: expect.stringContaining("more than 100000 values"),
  });
});

it("charges an answer that comes byte by byte by what it holds, until it is whole", async () => {
  const budget = new ByteBudget(64 * MIB);
  let used = 0;
  const raw = await rawHttp(async (asked: Asked) => {
    if (asked.method !== "tools/call") return asked.result({ ...DISCOVERED });
    const result = { content: [{ type: "text", text: "x".repeat(2_000) }], resultType: "complete" };
    asked.response.writeHead(200, { "content-type": "application/json" });
    for (const character of JSON.stringify({ jsonrpc: "2.0", id: asked.id, result })) {
      asked.response.write(character);
      await new Promise(setImmediate);
      used = Math.max(used, budget.used);
    }
    asked.response.end();
  });
  open.push(raw);
  const server = upstream({ name: "s", target: { transport: "http", url: raw.url }, dialer, budget });
  expect(textOf(await server.request(tool("drip", {}, { timeoutMs: 30_000 })))).toHaveLength(2_000);
  expect(used).toBeGreaterThan(1_000);
  expect(used).toBeLessThan(20_000);
  expect(budget.used).toBe(0);
});

/** Connections of servers that answer the handshake and `echo`, and do what `more` says with every other call. */
async function webSocket(more: (ws: WebSocket, id: number) => void): Promise<string> {
  const listener = new WebSocketServer({ host: "127.0.0.1", port: 0, handleProtocols: () => "mcp" });
  sockets.push(listener);
  await new Promise((resolve) => listener.once("listening", resolve));
  listener.on("connection", (ws) => {
    ws.on("error", () => {});
    ws.on("message", (data: Buffer) => {
      const { id, method, params } = JSON.parse(data.toString("utf8")) as JsonObject & { id: number };
      const result = (value: JsonObject): void => ws.send(JSON.stringify({ jsonrpc: "2.0", id, result: value }));
      if (method === "initialize") {
        result({ protocolVersion: "2025-11-25", capabilities: {}, serverInfo: { name: "ws", version: "1" } });
      } else if (method === "server/discover") {
        ws.send(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: "no such method" } }));
      } else if ((params as JsonObject | undefined)?.name === "echo") {
        result({ content: [{ type: "text", text: "still" }] });
      } else if (id !== undefined) more(ws, id);
    });
  });
  return `ws://127.0.0.1:${(listener.address() as AddressInfo).port}/mcp`;
}

describe("the unfinished message of a WebSocket server", () => {
  it("the unfinished message of a WebSocket server is charged to its application, and ends the connection where that may not keep so much [U12]", async () => {
    const budget = new ByteBudget(2 * MIB);
    const url = await webSocket((ws) => ws.send(" ".repeat(1_000_000), { fin: false }));
    const server = upstream({ name: "s", target: { transport: "websocket", url }, dialer, budget });
    expect(textOf(await server.request(tool("echo")))).toBe("still");
    const lost = faultOf(server.request(tool("begin", {}, { timeoutMs: 20_000 })));
    await expect.poll(() => budget.used).toBeGreaterThan(1_000_000);
    for (const name of ["continue", "exceed"]) void server.request(tool(name)).catch(() => {});
    expect((await lost).message).toContain("more unfinished messages than its application may keep");
    await server.close();
    expect(budget.used).toBe(0);
  });

  it("the unfinished message of a WebSocket server may not have thousands of fragments", async () => {
    const url = await webSocket((ws) => {
      for (let i = 0; i < 1_000; i++) ws.send(" ", { fin: false });
    });
    const server = upstream({ name: "s", target: { transport: "websocket", url }, dialer });
    const fault = await faultOf(server.request(tool("fragments", {}, { timeoutMs: 20_000 })));
    expect(fault.message).toContain("Too many message fragments");
  });
});
