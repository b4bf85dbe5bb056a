// Connections that outlast one message end when their key is revoked or their application is removed, in both eras of
// the protocol and on every transport that has them.

import { connect as connectTcp } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const INITIALIZE = { method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {} } };
const MODERN = {
  method: "tools/list",
  params: {
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
};
const FIRST = { "with a session": INITIALIZE, "without a session": MODERN };

let upstream: Counting;
let world: Deployment;
const sockets: (() => void)[] = [];

beforeEach(async () => {
  upstream = await counting("x");
  world = await deploy("permit (principal, action, resource);", {
    tcp: { host: "127.0.0.1", port: 0 },
    websocket: { host: "127.0.0.1", port: 0 },
  });
  await world.put("app", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } });
});
afterEach(async () => {
  for (const end of sockets.splice(0)) end();
  await world.close();
  await upstream.close();
});

/** Sends the message and resolves when it is answered; `ended` resolves when the gateway closes the connection. */
async function opened(
  transport: "tcp" | "websocket",
  token: string,
  message: object,
): Promise<{ ended: Promise<void> }> {
  const url = world.runtime.listeners[transport === "tcp" ? 1 : 2]?.url as string;
  const text = JSON.stringify({ jsonrpc: "2.0", id: 1, auth: { type: "bearer", token }, ...message });
  if (transport === "websocket") {
    const socket = new WebSocket(url, "mcp");
    sockets.push(() => socket.terminate());
    const ended = new Promise<void>((resolve) => socket.on("close", () => resolve()));
    await new Promise((resolve) => socket.once("message", resolve).once("open", () => socket.send(text)));
    return { ended };
  }
  const { hostname, port } = new URL(url);
  const socket = connectTcp(Number(port), hostname);
  sockets.push(() => socket.destroy());
  const ended = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  await new Promise((resolve) => socket.once("data", resolve).write(`${text}\n`));
  return { ended };
}

describe.each(["tcp", "websocket"] as const)("a connection over %s", (transport) => {
  it.each(Object.entries(FIRST))("a connection with %s ends when its key is revoked", async (_, message) => {
    const token = await world.key("app", "one");
    const kept = await opened(transport, await world.key("app", "two"), message);
    const { ended } = await opened(transport, token, message);
    let isKept = true;
    void kept.ended.then(() => (isKept = false));
    const { items } = await world.runtime.storage.keys.list({ app: "app" });
    const key = items.find(({ agent }) => agent === "one");
    await world.runtime.storage.keys.revoke(key?.id as string, "test");
    await ended;
    expect(isKept).toBe(true);
  });

  it.each(Object.entries(FIRST))("a connection with %s ends when its application is removed", async (_, message) => {
    const { ended } = await opened(transport, await world.key("app", "one"), message);
    await world.runtime.storage.applications.remove("app", "test");
    await ended;
  });
});
