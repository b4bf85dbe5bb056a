import { afterEach, expect, it } from "vitest";
import { META } from "../mcp/index.js";
import type { Peer, ReplyHead } from "../mcp/transports/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import type { Endpoint } from "./endpoint.js";

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

const peer: Peer = {
  transport: "http",
  address: "127.0.0.1",
  method: "POST",
  path: "/mcp",
  headers: {
    host: "localhost",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "note",
  },
};

const params = {
  name: "note",
  arguments: {},
  _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} },
};

function deliver(endpoint: Endpoint, message: object, queuedMs: number): Promise<{ text: string; head?: ReplyHead }> {
  return new Promise((resolve) => {
    const reply = {
      ended: false,
      send: () => true,
      drained: () => Promise.resolve(),
      open: () => {},
      onAbort: () => {},
      end: (text?: string | Buffer, head?: ReplyHead) =>
        resolve({ text: text?.toString() ?? "", ...(head === undefined ? {} : { head }) }),
    };
    endpoint.message({ text: JSON.stringify(message), peer, reply, queuedMs });
  });
}

it("refuses a request that waited too long for its turn with 503 and Retry-After, without effect, and takes notifications", async () => {
  let ran = 0;
  const server = createServer({ name: "t", version: "1" }, { policy: permitAll, limits: { queueDeadlineMs: 100 } });
  servers.push(server);
  server.tool("note", "notes", { type: "object", properties: {} }, () => `${++ran}`, { noGuardrailRequired: true });
  const endpoint = server.handler as Endpoint;
  const call = { jsonrpc: "2.0", id: 7, method: "tools/call", params };
  const late = await deliver(endpoint, call, 101);
  expect(late.head).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
  expect(JSON.parse(late.text)).toMatchObject({
    id: 7,
    error: { data: { code: "UNAVAILABLE", component: "gateway" } },
  });
  expect(ran).toBe(0);
  const note = await deliver(
    endpoint,
    { jsonrpc: "2.0", method: "notifications/cancelled", params: { ...params, requestId: 1 } },
    101,
  );
  expect(note.head?.status).toBe(202);
  const inTime = await deliver(endpoint, call, 100);
  expect(JSON.parse(inTime.text)).toMatchObject({ id: 7, result: { content: [{ text: "1" }] } });
});
