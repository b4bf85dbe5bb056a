// Two replicas on one PostgreSQL, and workers of one gateway, attacked between each other: what ends, expires or is approved
// at one holds at the other. The built command; a denial counts only when the server behind shows no effect.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";
import { portcullis, serve } from "./serving.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"notes.write", resource) unless { context.approved };
`;
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};
const WAIT = { timeout: 30_000, interval: 200 };

let replicas: Replicas;
let storage: Storage;
let server: Counting;
let [one, two]: Replica[] = [];

beforeAll(async () => {
  server = await counting("shop");
  replicas = await startReplicas(2, POLICY);
  [one, two] = replicas.all;
  storage = await openStorage(replicas.storage);
}, 180_000);
afterAll(async () => {
  await storage?.close();
  await replicas?.close();
  await server?.close();
});

const document = () => ({
  servers: {
    notes: { url: server.url, prefix: "notes", noGuardrail: ["*"], forward: ["_meta/com.example/*", "tenant"] },
  },
});

async function keyOf(app: string, agent: string, expiresAt?: number): Promise<{ id: string; token: string }> {
  const request = { app, agent, name: agent, permissions: ["invoke(*)", "read(*)", "list"] };
  const { key, token } = await createKey(
    storage.keys,
    { ...request, ...(expiresAt === undefined ? {} : { expiresAt }) },
    "test",
  );
  return { id: key.id, token };
}

async function send(
  at: Replica | undefined,
  token: string | undefined,
  body: object,
  headers: Record<string, string> = {},
) {
  const response = await fetch((at as Replica).url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: "2.0", ...body }),
  });
  return { status: response.status, session: response.headers.get("mcp-session-id"), text: await response.text() };
}

function call(
  at: Replica | undefined,
  token: string | undefined,
  name: string,
  text: string,
  more: object = {},
  meta: object = {},
) {
  const params = { name, arguments: { text }, ...more, _meta: { ...META, ...meta } };
  const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name };
  return send(at, token, { id: 1, method: "tools/call", params }, headers);
}

/** Calls by this key are served at both replicas. */
async function served(token: string): Promise<void> {
  for (const at of [one, two])
    await expect.poll(async () => (await call(at, token, "notes.read", "x")).text, WAIT).toContain("shop says x");
}

describe("the last credential of an application", () => {
  const ends: Record<string, (app: string, id: string) => Promise<unknown>> = {
    "is revoked": (_, id) => storage.keys.revoke(id, "test"),
    "has expired": async () => {},
    "went with its application": (app) => storage.applications.remove(app, "test"),
  };

  it.each(Object.keys(ends))(
    "no caller without a credential is served when the last one of its application %s at the other replica",
    async (how) => {
      const app = how.replaceAll(" ", "-");
      await storage.applications.put(app, document(), "test");
      const isExpiring = how === "has expired";
      const { id, token } = await keyOf(app, "last", isExpiring ? Date.now() + 15_000 : undefined);
      await served(token);
      await ends[how]?.(app, id);
      for (const at of [one, two]) {
        await expect.poll(async () => (await call(at, token, "notes.read", "y")).status, WAIT).toBe(401);
        const before = server.calls.length;
        expect((await call(at, undefined, "notes.read", "y")).status).toBe(401);
        expect((await send(at, undefined, { id: 1, method: "initialize", params: {} })).status).toBe(401);
        expect(server.calls.length).toBe(before);
      }
    },
    90_000,
  );
});

describe("an approval", () => {
  it("an approval is redeemed at the other replica for what was shown, and for nothing else", async () => {
    await storage.applications.put("shop", document(), "test");
    const [{ token }, { token: stranger }] = [await keyOf("shop", "alice"), await keyOf("shop", "mallory")];
    await served(token);
    const writes = (): number => server.calls.filter((name) => name === "write").length;
    const run = { "com.example/run": 1 };
    const asked = await call(one, token, "notes.write", "a", { tenant: "blue" }, run);
    expect(asked.text).toContain("approv");
    const operator = readFileSync(join(replicas.dir, "operator.token"), "utf8").trim();
    const admin = (path: string, method = "GET") =>
      fetch(`${two?.admin}/v1/approvals${path}`, {
        method,
        headers: { authorization: `Bearer ${operator}`, "content-type": "application/json" },
        ...(method === "POST" ? { body: "{}" } : {}),
      });
    const { approvals } = (await (await admin("")).json()) as { approvals: { id: string; agent: string }[] };
    const [pending] = approvals.filter(({ agent }) => agent === "alice");
    expect((await admin(`/${pending?.id}/approve`, "POST")).status).toBe(200);
    const others: [string, ...Parameters<typeof call>][] = [
      ["arguments", two, token, "notes.write", "b", { tenant: "blue" }, run],
      ["a field", two, token, "notes.write", "a", { tenant: "red" }, run],
      ["a field that is left out", two, token, "notes.write", "a", {}, run],
      ["_meta", two, token, "notes.write", "a", { tenant: "blue" }, { "com.example/run": 2 }],
      ["more _meta", two, token, "notes.write", "a", { tenant: "blue" }, { ...run, "com.example/more": 1 }],
      ["the caller", two, stranger, "notes.write", "a", { tenant: "blue" }, run],
    ];
    for (const [what, ...args] of others) {
      expect((await call(...args)).text, what).not.toContain("wrote");
      expect(writes(), what).toBe(0);
    }
    const both = await Promise.all(
      [two, one, two, one].map((at) => call(at, token, "notes.write", "a", { tenant: "blue" }, run)),
    );
    expect(both.filter(({ text }) => text.includes("shop wrote a"))).toHaveLength(1);
    expect(writes()).toBe(1);
  }, 90_000);
});

describe("a session", () => {
  const initialize = {
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  };

  it("a session of one replica cannot be used by another caller at the other, and its streams end with the key", async () => {
    await storage.applications.put("streams", document(), "test");
    const { token: stranger } = await keyOf("streams", "mallory");
    const { token } = await keyOf("streams", "alice", Date.now() + 20_000);
    await served(token);
    const { session } = await send(one, token, initialize);
    const mine = { "mcp-session-id": String(session), "mcp-protocol-version": "2025-11-25" };
    await send(one, token, { method: "notifications/initialized" }, mine);
    const list = { id: 2, method: "tools/list", params: {} };
    expect((await send(two, token, list, mine)).status).toBe(200);
    expect((await send(two, stranger, list, mine)).status).toBe(404);
    const stream = await fetch((two as Replica).url, {
      headers: { ...mine, accept: "text/event-stream", authorization: `Bearer ${token}` },
    });
    expect(stream.status).toBe(200);
    // Ends, and does not last until the test is over.
    const reader = stream.body?.getReader();
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read());
    expect((await send(two, token, list, mine)).status).toBe(401);
  }, 120_000);
});

describe("a stdio server that has other tools when the second replica starts it", () => {
  it("a stdio server that lists other tools at the second replica gets no call there for a tool that the first replica pinned differently", async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-pinned-"));
    try {
      const args = [join(import.meta.dirname, "restarting-server.mjs"), dir, "100"];
      const notes = { command: process.execPath, args, prefix: "notes", noGuardrail: ["*"] };
      await storage.applications.put("pinned", { servers: { notes } }, "test");
      const { token } = await keyOf("pinned", "alice");
      await expect.poll(async () => (await call(one, token, "notes.send", "x")).text, WAIT).toContain("1 send");
      await expect.poll(async () => (await call(two, token, "notes.steady", "x")).text, WAIT).toMatch(/[2-9] steady/);
      for (let i = 0; i < 5; i++) expect((await call(two, token, "notes.send", "x")).text).not.toMatch(/[2-9] send/);
      const reached = readFileSync(join(dir, "calls"), "utf8").trim().split("\n");
      expect(reached.filter((line) => /^[2-9] send/.test(line))).toEqual([]);
    } finally {
      await storage.applications.remove("pinned", "test");
      rmSync(dir, { recursive: true, force: true });
    }
  }, 120_000);
});

describe("workers", () => {
  it("workers serve no caller without a credential once a key was added, nor after the last one was revoked", async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-workers-"));
    const serving = await serve(["--workers", "2", "--log-level", "error"], { dir });
    try {
      const params = { name: "math.add", arguments: { a: 1, b: 2 }, _meta: META };
      const headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "math.add",
        // A connection of its own for each request, so that both workers are asked.
        connection: "close",
      };
      const at = { url: serving.url } as Replica;
      const tries = async (token?: string): Promise<number[]> => {
        const asked = Array.from({ length: 16 }, () =>
          send(at, token, { id: 1, method: "tools/call", params }, headers),
        );
        return [...new Set((await Promise.all(asked)).map(({ status }) => status))];
      };
      expect(await tries()).toEqual([200]);
      const cli = (...args: string[]) => portcullis(["--json", "--dir", dir, ...args]);
      const added = cli("key", "add", "local", "--name", "me", "--allow", "invoke(*)", "list");
      const { token, key } = JSON.parse(added.stdout) as { token: string; key: { id: string } };
      await expect.poll(() => tries(), WAIT).toEqual([401]);
      await expect.poll(() => tries(token), WAIT).toEqual([200]);
      expect(cli("key", "revoke", key.id).code).toBe(0);
      await expect.poll(() => tries(token), WAIT).toEqual([401]);
      expect(await tries()).toEqual([401]);
    } finally {
      await serving.stop();
      rmSync(dir, { recursive: true, force: true });
    }
  }, 120_000);
});
