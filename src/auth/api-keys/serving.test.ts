// Keys in front of a real server, over HTTP with the header and over TCP with the request's own field.

import { connect } from "node:net";
import { createInterface } from "node:readline";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createServer, permitAll, type Server } from "../../server.js";
import { openStorage, type Storage } from "../../storage/index.js";
import { ApiKeyCache } from "./cache.js";
import { createKey, newToken } from "./create.js";
import { keyIdentity } from "./identify.js";

describe("a server that asks for keys", () => {
  let storage: Storage;
  let ring: ApiKeyCache;
  let server: Server;
  let url: string;
  let tcp: string;
  let effects = 0;
  beforeAll(async () => {
    storage = await openStorage("sqlite::memory:");
    await storage.applications.put("blog", {}, "test");
    ring = await ApiKeyCache.open({ storage });
    server = createServer({ name: "t", version: "1" }, { policy: permitAll, identify: keyIdentity(ring) });
    for (const name of ["notes.write", "notes.read", "mail.send"]) {
      server.tool(name, "does it", { type: "object" }, () => `${name} ${++effects}`, { noGuardrailRequired: true });
    }
    url = (await server.listen({ transport: "http", port: 0 })).url;
    tcp = (await server.listen({ transport: "tcp", port: 0 })).url;
  });
  afterAll(async () => {
    await server.close();
    await ring.close();
    await storage.close();
  });

  const newKey = async (permissions: string[], more: object = {}): Promise<{ id: string; token: string }> => {
    const { key, token } = await createKey(storage.keys, { app: "blog", name: "k", permissions, ...more }, "test");
    return { id: key.id, token };
  };
  /** One call in the oldest way that there is: `POST /tools/{name}`. */
  const invoke = async (
    token: string | undefined,
    tool: string,
  ): Promise<{ status: number; body: any; text: string }> => {
    const answer = await request(new URL(`/tools/${tool}`, url), {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      body: "{}",
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, body: JSON.parse(text), text };
  };
  const listed = async (token: string): Promise<string[]> => {
    const { port, hostname } = new URL(tcp);
    const socket = connect(Number(port), hostname);
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const ask = async (message: object): Promise<any> => {
      socket.write(`${JSON.stringify({ jsonrpc: "2.0", auth: { type: "bearer", token }, ...message })}\n`);
      return JSON.parse((await lines.next()).value as string);
    };
    try {
      const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } };
      await ask({ id: 1, method: "initialize", params });
      socket.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
      const { result } = await ask({ id: 2, method: "tools/list", params: {} });
      return result.tools.map(({ name }: { name: string }) => name).sort();
    } finally {
      socket.destroy();
    }
  };

  it("lets a key call what it may, and nothing else exists for it [G6]", async () => {
    const { token } = await newKey(["invoke(notes.*)"]);
    expect((await invoke(token, "notes.write")).status).toBe(200);
    const before = effects;
    const [other, missing] = [await invoke(token, "mail.send"), await invoke(token, "mail.lost")];
    expect([other.status, missing.status]).toEqual([404, 404]);
    const plain = (text: string): string => text.replace(/"trace_id":"[^"]*"/g, "").replaceAll(/send|lost/g, "x");
    expect(plain(other.text)).toBe(plain(missing.text));
    expect(effects).toBe(before);
  });

  it("shows what may be read, and calls only what may be invoked [G6]", async () => {
    const reader = await newKey(["read(mail.send)", "invoke(notes.read)"]);
    expect(await listed(reader.token)).toEqual(["mail.send", "notes.read"]);
    expect((await invoke(reader.token, "mail.send")).status).toBe(404);
    const lister = await newKey(["list"]);
    expect(await listed(lister.token)).toEqual(["mail.send", "notes.read", "notes.write"]);
    expect((await invoke(lister.token, "notes.read")).status).toBe(404);
  });

  it("holds a key to its limits per minute and per hour, and says when to come back [G6]", async () => {
    for (const limits of [{ perMinute: 2 }, { perHour: 2 }]) {
      const { token } = await newKey(["invoke(*)"], { limits });
      const other = await newKey(["invoke(*)"], { limits });
      expect((await invoke(token, "notes.read")).status).toBe(200);
      expect((await invoke(token, "notes.write")).status).toBe(200);
      const before = effects;
      const third = await invoke(token, "notes.read");
      expect(third.status).toBe(429);
      expect(third.text).toMatch(/Try again in \d+ s/);
      expect(effects).toBe(before);
      expect((await invoke(other.token, "notes.read")).status).toBe(200);
    }
  });

  it("turns everyone else away with the same words, and nothing happens [G6]", async () => {
    const revoked = await newKey(["invoke(*)"]);
    await storage.keys.revoke(revoked.id, "test");
    const expired = await newKey(["invoke(*)"], { expiresAt: Date.now() - 1 });
    const approver = await newKey(["approve(operators)"]);
    const before = effects;
    const tokens = ["", "nonsense", newToken("caller").text, revoked.token, expired.token, approver.token];
    const answers = await Promise.all(tokens.map((token) => invoke(token, "notes.read")));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
    expect(new Set(answers.map(({ text }) => text.replace(/"trace_id":"[^"]*"/g, ""))).size).toBe(1);
    const missing = await invoke(undefined, "notes.read");
    expect(missing.status).toBe(401);
    expect(missing.text).toContain("the request has no credential");
    expect(missing.text).toContain("Authorization: Bearer");
    expect(missing.text).toContain("portcullis key add APP");
    expect(effects).toBe(before);
  });
});
