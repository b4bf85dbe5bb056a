// The transports of the official SDK against ours: what they write we read, what we write they read.

import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import type { JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { type Listener, listenHttp, listenWebSocket, type Reply, type TransportHandler } from "./index.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

const ask: JSONRPCMessage = { jsonrpc: "2.0", id: "ä-1", method: "tools/list", params: { cursor: "漢\u2028🏰\n" } };
const note = { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "first\nsecond" } };
const answer = { jsonrpc: "2.0", id: "ä-1", result: { tools: [] } };

async function heardBy(transport: Transport, count: number): Promise<JSONRPCMessage[]> {
  const heard: JSONRPCMessage[] = [];
  const enough = new Promise<void>((resolve, reject) => {
    transport.onmessage = (message) => {
      if (heard.push(message) === count) resolve();
    };
    transport.onerror = reject;
  });
  await transport.start();
  cleanUp.push(() => transport.close());
  await transport.send(ask);
  await enough;
  return heard;
}

function keep(listener: Listener): URL {
  cleanUp.push(() => listener.close(0));
  return new URL(listener.url);
}

/** Says something before it answers, in JSON of several lines. */
const talkative: TransportHandler = {
  message({ text, reply }) {
    expect(JSON.parse(text)).toEqual(ask);
    reply.send(JSON.stringify(note, null, 2), "event-1");
    reply.end(JSON.stringify(answer, null, 2));
  },
};

test("the SDK's HTTP client reads our event streams, and our plain answers", async () => {
  const streamed = new StreamableHTTPClientTransport(keep(await listenHttp(talkative)));
  expect(await heardBy(streamed, 2)).toEqual([note, answer]);
  const brief: TransportHandler = { message: ({ reply }) => reply.end(JSON.stringify(answer)) };
  const plain = new StreamableHTTPClientTransport(keep(await listenHttp(brief)));
  expect(await heardBy(plain, 1)).toEqual([answer]);
});

test("the SDK's HTTP client resumes where our stream was cut, as told by id and retry", async () => {
  const resumedAt: unknown[] = [];
  const url = await listenHttp({
    message({ reply }) {
      reply.open({}, 10);
      reply.send("", "event-1");
      reply.end();
    },
    http({ reply, peer }: { reply: Reply; peer: { headers?: Record<string, unknown> } }) {
      resumedAt.push(peer.headers?.["last-event-id"]);
      reply.send(JSON.stringify(answer), "event-2");
      reply.end();
      return true;
    },
  });
  const transport = new StreamableHTTPClientTransport(keep(url));
  expect(await heardBy(transport, 1)).toEqual([answer]);
  expect(resumedAt[0]).toBe("event-1");
});

test("the SDK's WebSocket client speaks with our server", async () => {
  // Node 20 has no WebSocket of its own, which is what that client expects to find.
  const before = Object.getOwnPropertyDescriptor(globalThis, "WebSocket");
  Object.defineProperty(globalThis, "WebSocket", { value: WebSocket, configurable: true, writable: true });
  cleanUp.push(() => {
    if (before === undefined) Reflect.deleteProperty(globalThis, "WebSocket");
    else Object.defineProperty(globalThis, "WebSocket", before);
  });
  const transport = new WebSocketClientTransport(keep(await listenWebSocket(talkative)));
  expect(await heardBy(transport, 2)).toEqual([note, answer]);
});
