// Streams and connections of a key that expires while they are open, over real sockets.

import { connect as connectTcp } from "node:net";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { ApiKeyCache, createKey, keyIdentity } from "../auth/index.js";
import { META, steadyNow } from "../mcp/index.js";
import type { Channel, Reply } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openStorage, type Storage } from "../storage/index.js";
import { Expiries } from "./expiry.js";

/** Long enough to open a stream on a loaded machine. */
const LIFE_MS = 8_000;
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } },
};

describe("when a key expires", { timeout: 60_000 }, () => {
  let storage: Storage;
  let ring: ApiKeyCache;
  let server: Server;
  const closing: (() => unknown)[] = [];
  beforeAll(async () => {
    storage = await openStorage("sqlite::memory:");
    await storage.applications.put("blog", {}, "test");
    ring = await ApiKeyCache.open({ storage });
    server = createServer({ name: "t", version: "1" }, { policy: permitAll, identify: keyIdentity(ring) });
    server.resource("t://r", "r", "text");
  });
  afterAll(async () => {
    for (const close of closing.splice(0).reverse()) await close();
    await server.close();
    await ring.close();
    await storage.close();
  });

  const newKey = async (lifeMs?: number): Promise<{ token: string; expiresAt: number }> => {
    const expiresAt = lifeMs === undefined ? undefined : steadyNow() + lifeMs;
    const made = {
      app: "blog",
      name: "k",
      permissions: ["invoke(*)"],
      ...(expiresAt === undefined ? {} : { expiresAt }),
    };
    return { token: (await createKey(storage.keys, made, "test")).token, expiresAt: expiresAt ?? 0 };
  };
  const headers = (token: string, more: Record<string, string> = {}): Record<string, string> => ({
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    ...more,
  });
  const post = (url: string, token: string, message: object, more: Record<string, string> = {}) =>
    request(url, { method: "POST", headers: headers(token, more), body: JSON.stringify(message) });
  const session = async (url: string, token: string): Promise<Record<string, string>> => {
    const begun = await post(url, token, INITIALIZE);
    await begun.body.dump();
    const id = { "mcp-session-id": String(begun.headers["mcp-session-id"]) };
    await (await post(url, token, { jsonrpc: "2.0", method: "notifications/initialized" }, id)).body.dump();
    return id;
  };

  it.concurrent("ends the event stream of its session, and a renewed key of the agent opens another [L9]", async () => {
    const { url } = await server.listen({ transport: "http", port: 0 });
    const [short, lasting] = [await newKey(LIFE_MS), await newKey()];
    const id = await session(url, short.token);
    const stream = await request(url, { method: "GET", headers: headers(short.token, id) });
    expect(stream.statusCode).toBe(200);
    await stream.body.text();
    expect(steadyNow()).toBeGreaterThanOrEqual(short.expiresAt);
    const again = await request(url, { method: "GET", headers: headers(lasting.token, id) });
    closing.push(() => again.body.destroy());
    expect(again.statusCode).toBe(200);
  });

  it.concurrent("ends its listen stream [L9]", async () => {
    const { url } = await server.listen({ transport: "http", port: 0 });
    const { token, expiresAt } = await newKey(LIFE_MS);
    const params = {
      notifications: { resourceSubscriptions: ["t://r"] },
      _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} },
    };
    const answer = await post(
      url,
      token,
      { jsonrpc: "2.0", id: 7, method: "subscriptions/listen", params },
      { "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen" },
    );
    expect(await answer.body.text()).toContain("acknowledged");
    expect(steadyNow()).toBeGreaterThanOrEqual(expiresAt);
  });

  it.concurrent("ends the stream of a call that is under way, and the answer is kept for a renewed key", async () => {
    const { url } = await server.listen({ transport: "http", port: 0 });
    let finish = (): void => {};
    const done = new Promise<void>((resolve) => {
      finish = resolve;
    });
    server.tool(
      "slow",
      "reports and waits",
      { type: "object" },
      async (_args, context) => {
        await context.write("begun");
        await done;
        return "the answer";
      },
      { noGuardrailRequired: true },
    );
    const [short, lasting] = [await newKey(LIFE_MS), await newKey()];
    const id = await session(url, short.token);
    const call = {
      jsonrpc: "2.0",
      id: 2,
      method: "tools/call",
      params: { name: "slow", arguments: {}, _meta: { progressToken: "p" } },
    };
    const answer = await post(url, short.token, call, id);
    const seen = await answer.body.text();
    expect(steadyNow()).toBeGreaterThanOrEqual(short.expiresAt);
    expect(seen).toContain("notifications/progress");
    const lastEvent = /^id: (.+)$/m.exec(seen)?.[1] as string;
    finish();
    const resumed = await request(url, {
      method: "GET",
      headers: headers(lasting.token, { ...id, "last-event-id": lastEvent }),
    });
    expect(await resumed.body.text()).toContain("the answer");
  });

  it.concurrent("closes its WebSocket [L9]", async () => {
    const { url } = await server.listen({ transport: "websocket", port: 0 });
    const { token, expiresAt } = await newKey(LIFE_MS);
    const socket = new WebSocket(url, "mcp", { headers: { authorization: `Bearer ${token}` } });
    closing.push(() => socket.terminate());
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const answered = new Promise((resolve) => socket.once("message", resolve));
    socket.send(JSON.stringify(INITIALIZE));
    await answered;
    await closed;
    expect(steadyNow()).toBeGreaterThanOrEqual(expiresAt);
  });

  it.concurrent("closes its TCP connection [L9]", async () => {
    const { url } = await server.listen({ transport: "tcp", port: 0 });
    const { token, expiresAt } = await newKey(LIFE_MS);
    const socket = connectTcp(Number(new URL(url).port), new URL(url).hostname);
    closing.push(() => socket.destroy());
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const answered = new Promise((resolve) => socket.once("data", resolve));
    socket.write(`${JSON.stringify({ ...INITIALIZE, auth: { type: "bearer", token } })}\n`);
    await answered;
    await closed;
    expect(steadyNow()).toBeGreaterThanOrEqual(expiresAt);
  });
});

describe("expiries", () => {
  const principal = (more: Partial<Principal>): Principal => ({
    app: "a",
    agent: "b",
    scope: [],
    via: "key",
    credential: "k",
    ...more,
  });
  const channel = (): Channel & { closes: number } => {
    const made = { closes: 0, close: () => void made.closes++, onClose: () => {} };
    return made as unknown as Channel & { closes: number };
  };
  const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 100));

  it("expiries prolong a connection for a renewed credential of the same caller only", async () => {
    const expiries = new Expiries();
    const [renewed, other, session] = [channel(), channel(), channel()];
    const soon = steadyNow() - 1;
    for (const each of [renewed, other]) expiries.hold(each, principal({ expiresAt: soon }));
    expiries.hold(renewed, principal({ expiresAt: soon + 3_600_000 }));
    expiries.hold(other, principal({ expiresAt: soon + 3_600_000, credential: "another" }));
    expiries.hold(session, principal({}));
    expiries.hold(session, principal({ expiresAt: soon, credential: "another" }), true);
    await settled();
    expect([renewed.closes, other.closes, session.closes]).toEqual([0, 1, 1]);
    expiries.close();
  });

  it("expiries keep nothing of replies that have ended", () => {
    const expiries = new Expiries();
    const reply = { ended: false, end: () => {}, onAbort: () => {} } as unknown as Reply;
    expiries.limit(reply, { expiresAt: steadyNow() + 3_600_000 }).end();
    expect(expiries.size).toBe(0);
    expiries.close();
  });
});
