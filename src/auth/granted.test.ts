// Restricted credentials in front of a real server, over HTTP: what was not granted does not exist for them.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { META } from "../mcp/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openStorage, type Storage } from "../storage/index.js";
import { Granted } from "./granted.js";
import { ApiKeyCache, createKey, keyIdentity } from "./index.js";

describe("granted patterns", () => {
  it("granted patterns keep tools, resources and prompts apart, and a bare * is everything", () => {
    const some = new Granted(["notes.*", "resource:doc://open/*", "prompt:hello"]);
    expect([some.tools.has("notes.get"), some.tools.has("hello"), some.tools.has("doc://open/a")]).toEqual([
      true,
      false,
      false,
    ]);
    expect([some.resources.has("doc://open/a"), some.resources.has("doc://closed/a")]).toEqual([true, false]);
    expect([some.prompts.has("hello"), some.prompts.has("notes.get")]).toEqual([true, false]);
    const tools = new Granted(["tool:*"]);
    expect([tools.tools.has("x"), tools.resources.has("doc://x"), tools.prompts.has("x")]).toEqual([
      true,
      false,
      false,
    ]);
    const all = new Granted(["*"]);
    expect([all.tools.has("x"), all.resources.has("doc://../x"), all.prompts.has("x")]).toEqual([true, true, true]);
  });

  it.each([
    "doc://open/../closed/a",
    "doc://open/%2e%2e/closed/a",
    "doc://open/%252e%252e/closed/a",
    "doc://open/..%2fclosed/a",
    "doc://open/..\\closed",
    "doc://open/..",
    "doc://open/..;/closed",
    "doc://open/a%00",
    "doc://open/%",
  ])("granted patterns do not match %s, which may leave the granted directory", (uri) => {
    expect(new Granted(["resource:doc://open/*"]).resources.has(uri)).toBe(false);
    expect(new Granted([`resource:${uri}`]).resources.has(uri)).toBe(true);
  });

  it("granted patterns match names that only contain dots", () => {
    const { resources } = new Granted(["resource:doc://open/*"]);
    for (const uri of ["doc://open/.hidden", "doc://open/a..b", "doc://open/{path}", "doc://open/100%25"]) {
      expect(resources.has(uri)).toBe(true);
    }
  });
});

describe("a restricted key", () => {
  let storage: Storage;
  let ring: ApiKeyCache;
  let server: Server;
  let url: string;
  const reached: string[] = [];
  const saw = (what: string): string => {
    reached.push(what);
    return `inside ${what}`;
  };
  beforeAll(async () => {
    storage = await openStorage("sqlite::memory:");
    await storage.applications.put("blog", {}, "test");
    ring = await ApiKeyCache.open({ storage });
    server = createServer({ name: "t", version: "1" }, { policy: permitAll, identify: keyIdentity(ring) });
    server.tool("notes.get", "reads", { type: "object" }, () => "a note", { noGuardrailRequired: true });
    for (const part of ["open", "closed"]) {
      server
        .resource(`doc://${part}/a`, part, () => saw(`${part} resource`))
        .template(`doc://${part}/by-id/{id}`, part, () => saw(`${part} template`), {
          complete: { id: () => [saw(`${part} template completion`)] },
        })
        .prompt(part, part, { name: {} }, () => saw(`${part} prompt`), {
          complete: { name: () => [saw(`${part} prompt completion`)] },
        });
    }
    url = (await server.listen({ transport: "http", port: 0 })).url;
  });
  afterAll(async () => {
    await server.close();
    await ring.close();
    await storage.close();
  });

  const newKey = async (...permissions: string[]): Promise<string> =>
    (await createKey(storage.keys, { app: "blog", name: "k", permissions }, "test")).token;
  const ask = async (token: string, method: string, params: Record<string, unknown> = {}): Promise<any> => {
    const name = params.name ?? params.uri;
    const answer = await request(url, {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        ...(typeof name === "string" ? { "mcp-name": name } : {}),
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method,
        params: { ...params, _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} } },
      }),
    });
    if (method !== "subscriptions/listen") return answer.body.json();
    // The first event says what was granted.
    for await (const chunk of answer.body) {
      const line = /^data: (.+)$/m.exec(String(chunk))?.[1];
      if (line !== undefined) return JSON.parse(line);
    }
    throw new Error("no event");
  };
  /** The same for something that is hidden and something that is missing, but for its name. */
  const plain = (answer: unknown): string =>
    JSON.stringify(answer)
      .replace(/"trace_id":"[^"]*"/g, "")
      .replaceAll(/closed|missing/g, "x");
  const listed = async (token: string): Promise<string[]> => {
    const [resources, templates, prompts] = [
      await ask(token, "resources/list"),
      await ask(token, "resources/templates/list"),
      await ask(token, "prompts/list"),
    ];
    return [
      ...resources.result.resources.map(({ uri }: { uri: string }) => uri),
      ...templates.result.resourceTemplates.map(({ uriTemplate }: { uriTemplate: string }) => uriTemplate),
      ...prompts.result.prompts.map(({ name }: { name: string }) => name),
    ];
  };
  const argument = { name: "name", value: "" };
  const idArgument = { name: "id", value: "" };
  const asks = (part: string): [string, Record<string, unknown>][] => [
    ["resources/read", { uri: `doc://${part}/a` }],
    ["resources/read", { uri: `doc://${part}/by-id/1` }],
    ["prompts/get", { name: part, arguments: {} }],
    ["completion/complete", { ref: { type: "ref/prompt", name: part }, argument }],
    ["completion/complete", { ref: { type: "ref/resource", uri: `doc://${part}/by-id/{id}` }, argument: idArgument }],
  ];

  it("a restricted key with tools alone reaches no resource, prompt, completion or subscription, and cannot tell them from missing ones [G6]", async () => {
    const token = await newKey("invoke(notes.*)", "list");
    reached.length = 0;
    expect(await listed(token)).toEqual([]);
    for (const [i, [method, params]] of asks("closed").entries()) {
      const missing = asks("missing")[i]?.[1] as Record<string, unknown>;
      expect(plain(await ask(token, method, params))).toBe(plain(await ask(token, method, missing)));
    }
    const uris = ["doc://closed/a", "doc://missing/a"];
    const listening = await ask(token, "subscriptions/listen", { notifications: { resourceSubscriptions: uris } });
    expect(listening.params.notifications.resourceSubscriptions).toEqual([]);
    expect(reached).toEqual([]);
  });

  it("a restricted key with granted resources and prompts reaches exactly those [G6]", async () => {
    const token = await newKey("read(resource:doc://open/*)", "read(prompt:open)");
    reached.length = 0;
    expect(await listed(token)).toEqual(["doc://open/a", "doc://open/by-id/{id}", "open"]);
    for (const [method, params] of asks("open")) expect((await ask(token, method, params)).error).toBeUndefined();
    for (const [method, params] of asks("closed")) await ask(token, method, params);
    const all = ["resource", "template", "prompt", "prompt completion", "template completion"];
    expect(reached).toEqual(all.map((what) => `open ${what}`));
    const uris = ["doc://closed/a", "doc://open/a"];
    const listening = await ask(token, "subscriptions/listen", { notifications: { resourceSubscriptions: uris } });
    expect(listening.params.notifications.resourceSubscriptions).toEqual(["doc://open/a"]);
    expect((await ask(token, "tools/call", { name: "notes.get", arguments: {} })).error).toBeDefined();
  });

  it("a restricted key cannot subscribe in a handshake session to a resource that was not granted", async () => {
    const token = await newKey("invoke(notes.*)");
    let session: string | undefined;
    const post = async (message: object): Promise<any> => {
      const answer = await request(url, {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...(session === undefined ? {} : { "mcp-session-id": session }),
        },
        body: JSON.stringify({ jsonrpc: "2.0", ...message }),
      });
      session ??= String(answer.headers["mcp-session-id"]);
      const text = await answer.body.text();
      return text === "" ? undefined : JSON.parse(text);
    };
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } };
    await post({ id: 1, method: "initialize", params });
    await post({ method: "notifications/initialized" });
    const subscribe = (uri: string) => post({ id: 2, method: "resources/subscribe", params: { uri } });
    const hidden = await subscribe("doc://closed/a");
    expect(hidden.error).toBeDefined();
    expect(plain(hidden)).toBe(plain(await subscribe("doc://missing/a")));
  });

  it("a restricted key with invoke(*) keeps everything of its application [G6]", async () => {
    const token = await newKey("invoke(*)");
    reached.length = 0;
    expect(await listed(token)).toHaveLength(6);
    for (const [method, params] of asks("closed")) await ask(token, method, params);
    expect(reached).toHaveLength(5);
  });
});
