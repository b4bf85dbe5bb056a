// Keys of every wrong kind, at the door: the right status, the right error, and nothing reaches the server behind.

import { once } from "node:events";
import { createConnection } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKey, type KeyRequest } from "../../src/auth/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

let deployment: Deployment;
let downstream: Counting;

beforeAll(async () => {
  downstream = await counting("team");
  deployment = await deploy("permit (principal, action, resource);", { tcp: { host: "127.0.0.1", port: 0 } });
  await deployment.put("team", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } });
  // Opened, so that what is refused later is not refused for want of an application.
  const client = await deployment.client(await deployment.key("team", "first"));
  await client.callTool("read", {});
  await client.close();
});
afterAll(async () => {
  await deployment.close();
  await downstream.close();
});

async function newKey(more: Partial<KeyRequest> = {}): Promise<{ token: string; id: string }> {
  const request: KeyRequest = { app: "team", agent: "agent", name: "agent", permissions: ["invoke(*)"], ...more };
  const { key, token } = await createKey(deployment.runtime.storage.keys, request, "test");
  return { token, id: key.id };
}

const CALL = {
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    name: "read",
    arguments: { text: "x" },
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
};
const HEADERS = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "read" };

async function reached<T>(work: () => Promise<T>): Promise<{ answer: T; calls: string[] }> {
  downstream.calls.length = 0;
  const answer = await work();
  await sleep(20);
  return { answer, calls: [...downstream.calls] };
}

describe("a key that is", () => {
  const wrong: Record<string, () => Promise<string>> = {
    missing: async () => "",
    "made up": async () => "pk_abcdefgh_0123456789abcdef0123456789abcdef",
    "cut short": async () => (await newKey()).token.slice(0, -1),
    "changed by one character": async () => {
      const { token } = await newKey();
      return token.slice(0, -1) + (token.endsWith("a") ? "b" : "a");
    },
    expired: async () => {
      const { token } = await newKey({ expiresAt: Date.now() + 50 });
      await sleep(80);
      return token;
    },
    revoked: async () => {
      const { token, id } = await newKey();
      expect((await deployment.post(token, CALL, HEADERS)).status).toBe(200);
      await deployment.runtime.storage.keys.revoke(id, "test");
      await expect.poll(async () => (await deployment.post(token, CALL, HEADERS)).status).not.toBe(200);
      return token;
    },
    "an approver's": async () => (await newKey({ permissions: ["approve(operators)"] })).token,
  };

  it("an invalid key is refused with the same answer whatever is wrong with it, and nothing runs [H4]", async () => {
    const answers = new Set<string>();
    for (const [what, make] of Object.entries(wrong)) {
      const token = await make();
      const { answer, calls } = await reached(() => deployment.post(token, CALL, HEADERS));
      expect([what, answer.status, calls]).toEqual([what, 401, []]);
      answers.add(answer.text.replace(/"trace_id":"[0-9a-f]+"/, ""));
    }
    expect([...answers]).toHaveLength(1);
    expect([...answers][0]).toContain("UNAUTHENTICATED");
  });

  it.each(["revoked", "given other permissions"])(
    "a key that is %s receives no more notifications on its open streams",
    async (how) => {
      const { token, id } = await newKey();
      const headers = {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
      };
      const post = (body: object, more: Record<string, string>) =>
        fetch(deployment.url, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) });
      const listen = await post(
        {
          jsonrpc: "2.0",
          id: 1,
          method: "subscriptions/listen",
          params: { notifications: { toolsListChanged: true }, _meta: CALL.params._meta },
        },
        { "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen" },
      );
      const opened = await post(
        { jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {} } },
        {},
      );
      const session = { "mcp-session-id": opened.headers.get("mcp-session-id") as string };
      await opened.text();
      await (await post({ jsonrpc: "2.0", method: "notifications/initialized" }, session)).text();
      const stream = await fetch(deployment.url, { headers: { ...headers, ...session } });
      expect([listen.status, stream.status]).toEqual([200, 200]);
      const { port } = new URL(deployment.runtime.listeners.find(({ url }) => url.startsWith("tcp:"))?.url as string);
      const socket = createConnection(Number(port), "127.0.0.1");
      const params = { protocolVersion: "2025-11-25", capabilities: {} };
      const auth = { type: "bearer", token };
      socket.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params, auth })}\n`);
      await once(socket, "data");
      const ended = Promise.all([listen.text(), stream.text(), once(socket, "close")]);
      const { keys } = deployment.runtime.storage;
      if (how === "revoked") await keys.revoke(id, "test");
      else await keys.change(id, { permissions: ["invoke(none)"], limits: {} }, "test");
      await ended;
    },
  );

  it("a key that may use some tools may use no others, and lists show only those [H4 H11]", async () => {
    const { token } = await newKey({ permissions: ["invoke(read)"] });
    const client = await deployment.client(token);
    expect((await client.listTools()).map((tool) => tool.name)).toEqual(["read"]);
    const described = await fetch(new URL("/openapi.json", deployment.url), {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(Object.keys(((await described.json()) as { paths: object }).paths)).toEqual(["/tools/read"]);
    const { answer, calls } = await reached(() => client.callTool("write", {}).catch((error: Error) => error.message));
    expect(answer).toContain("there is no tool");
    expect(calls).toEqual([]);
    await client.close();
  });

  it("a key over its limit is answered with Retry-After, and nothing runs [H11]", async () => {
    const { token } = await newKey({ agent: "eager", limits: { perMinute: 2 } });
    const statuses: unknown[] = [];
    const { calls } = await reached(async () => {
      for (let i = 0; i < 4; i++) {
        const { text } = await deployment.post(token, CALL, HEADERS);
        const { result } = JSON.parse(text) as {
          result: { structuredContent?: { code: string; retry_after_ms: number } };
        };
        statuses.push(result.structuredContent?.code ?? "ok");
        if (result.structuredContent) expect(result.structuredContent.retry_after_ms).toBeGreaterThan(0);
      }
    });
    expect(statuses).toEqual(["ok", "ok", "RATE_LIMITED", "RATE_LIMITED"]);
    expect(calls).toEqual(["read", "read"]);
  });

  it("a key sent in the request's own field works where there are no headers, and is never forwarded", async () => {
    const { token } = await newKey();
    const { connect } = await import("node:net");
    const url = new URL(deployment.runtime.listeners[1]?.url as string);
    const socket = connect(Number(url.port), url.hostname);
    const lines: string[] = [];
    let unread = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      const parts = (unread + chunk).split("\n");
      unread = parts.pop() as string;
      lines.push(...parts);
    });
    const ask = async (auth: object | undefined): Promise<string> => {
      const before = lines.length;
      socket.write(`${JSON.stringify({ ...CALL, ...(auth ? { auth } : {}) })}\n`);
      for (let i = 0; i < 200 && lines.length === before; i++) await sleep(10);
      return lines.at(-1) as string;
    };
    expect(await ask(undefined)).toContain("UNAUTHENTICATED");
    expect(await ask({ type: "bearer", token })).toContain("team says x");
    socket.destroy();
  });
});
