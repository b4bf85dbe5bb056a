// Credentials, approvals and streams at the workers of one gateway, attacked with the built command. A denial counts only
// when the server behind shows no effect.

import { readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { overTcp, overWebSocket } from "./one-message.js";
import { ALL, INITIALIZE, JSON_TYPE, META, repeated, statuses, WAIT, Workers } from "./worker-world.js";

const workers = new Workers();
const TRIES = 6;

beforeAll(() => workers.open(["--tcp-port", "0", "--ws-port", "0"]), 180_000);
afterAll(() => workers.close());

describe("the last credential of an application", () => {
  const ends: Record<string, (app: string, id: string) => Promise<unknown>> = {
    "is revoked": (_, id) => workers.storage.keys.revoke(id, "test"),
    "has expired": async () => {},
    "went with its application": (app) => workers.storage.applications.remove(app, "test"),
  };

  it.each(Object.keys(ends))(
    "no caller without a credential is served at any worker, on any transport, when the last one of its application %s",
    async (how) => {
      const app = how.replaceAll(" ", "-");
      await workers.storage.applications.put(app, { servers: { notes: workers.notes } }, "test");
      const until = how === "has expired" ? Date.now() + 15_000 : undefined;
      const { id, token } = await workers.keyOf(app, "last", ALL, until);
      await workers.served(token);
      await ends[how]?.(app, id);
      await expect.poll(() => statuses(() => workers.call(token, "notes.read", { text: "y" })), WAIT).toEqual([401]);
      workers.shop.calls.length = 0;
      expect(await statuses(() => workers.call(undefined, "notes.read", { text: "y" }))).toEqual([401]);
      expect(await statuses(() => workers.send(undefined, INITIALIZE))).toEqual([401]);
      expect(await statuses(() => workers.post("/tools/notes.read", undefined, JSON_TYPE, '{"text":"y"}'))).toEqual([
        401,
      ]);
      const params = { name: "notes.read", arguments: { text: "y" }, _meta: META };
      const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
      const [, tcp, ws] = workers.serving.urls as [string, string, string];
      for (const each of [message, { ...message, auth: { type: "bearer", token } }]) {
        for (const text of await repeated(() => overTcp(tcp, each))) expect(text).toContain("UNAUTHENTICATED");
        for (const text of await repeated(() => overWebSocket(ws, each))) expect(text).toContain("UNAUTHENTICATED");
      }
      expect(workers.shop.calls).toEqual([]);
    },
    120_000,
  );
});

describe("an approval", () => {
  it("an approval is redeemed once among the workers, for the fields that were shown and for no others", async () => {
    const [{ token }, { token: stranger }] = [
      await workers.keyOf("shop", "alice"),
      await workers.keyOf("shop", "mallory"),
    ];
    await workers.served(token);
    await workers.served(stranger);
    workers.shop.calls.length = 0;
    const run = { "com.example/run": 1 };
    expect((await workers.call(token, "notes.write", { text: "a" }, { tenant: "blue" }, run)).text).toContain("approv");
    const operator = readFileSync(join(workers.dir, "operator.token"), "utf8").trim();
    const admin = (path: string, method = "GET") =>
      fetch(`${workers.serving.admin}/v1/approvals${path}`, {
        method,
        headers: { authorization: `Bearer ${operator}`, "content-type": "application/json" },
        ...(method === "POST" ? { body: "{}" } : {}),
      });
    const { approvals } = (await (await admin("")).json()) as { approvals: { id: string; agent: string }[] };
    const [pending] = approvals.filter(({ agent }) => agent === "alice");
    expect((await admin(`/${pending?.id}/approve`, "POST")).status).toBe(200);
    const others: [string, string, object, object, object][] = [
      ["arguments", token, { text: "b" }, { tenant: "blue" }, run],
      ["a field", token, { text: "a" }, { tenant: "red" }, run],
      ["a field that is left out", token, { text: "a" }, {}, run],
      ["_meta", token, { text: "a" }, { tenant: "blue" }, { "com.example/run": 2 }],
      ["more _meta", token, { text: "a" }, { tenant: "blue" }, { ...run, "com.example/more": 1 }],
      ["the caller", stranger, { text: "a" }, { tenant: "blue" }, run],
    ];
    for (const [what, by, args, more, meta] of others) {
      for (const { text } of await repeated(() => workers.call(by, "notes.write", args, more, meta), 2))
        expect(text, what).not.toContain("wrote");
      expect(workers.shop.calls, what).toEqual([]);
    }
    const asked = Array.from({ length: TRIES }, () =>
      workers.call(token, "notes.write", { text: "a" }, { tenant: "blue" }, run),
    );
    expect((await Promise.all(asked)).filter(({ text }) => text.includes("shop wrote a"))).toHaveLength(1);
    expect(workers.shop.calls).toEqual(["write"]);
  }, 120_000);
});

describe("a key with tools alone", () => {
  const plain = (text: string): string => text.replace(/"trace_id":"[^"]*"/g, "").replaceAll(/shop|none/g, "x");
  const asks = (part: string): [string, Record<string, unknown>][] => [
    ["resources/read", { uri: `notes+note://${part}/one` }],
    ["resources/read", { uri: `notes+note://${part}/by-id/1` }],
    ["prompts/get", { name: part === "shop" ? "notes.greet" : "notes.none", arguments: {} }],
    [
      "completion/complete",
      { ref: { type: "ref/resource", uri: `notes+note://${part}/by-id/{id}` }, argument: { name: "id", value: "" } },
    ],
    [
      "completion/complete",
      {
        ref: { type: "ref/prompt", name: part === "shop" ? "notes.greet" : "notes.none" },
        argument: { name: "name", value: "" },
      },
    ],
  ];

  it("a key with tools alone reaches no resource, prompt, completion or subscription at any worker, although another key just did", async () => {
    const [{ token: full }, { token }] = [
      await workers.keyOf("shop", "full"),
      await workers.keyOf("shop", "narrow", ["invoke(notes.read)"]),
    ];
    await workers.served(full);
    await workers.served(token);
    workers.shop.calls.length = 0;
    for (const [method, params] of asks("shop")) await repeated(() => workers.ask(full, method, params), 2);
    expect(new Set(workers.shop.calls)).toEqual(
      new Set(["note", "template", "prompt", "template completion", "prompt completion"]),
    );
    workers.shop.calls.length = 0;
    for (const [i, [method, params]] of asks("shop").entries()) {
      const missing = asks("none")[i]?.[1] as Record<string, unknown>;
      const [expected] = await repeated(() => workers.ask(token, method, missing), 1);
      for (const { text, status } of await repeated(() => workers.ask(token, method, params), 4)) {
        const hidden = plain(text).replaceAll("notes.greet", "notes.x");
        expect([status, hidden]).toEqual([expected?.status, plain(expected?.text as string)]);
      }
    }
    for (const method of ["resources/list", "resources/templates/list", "prompts/list", "tools/list"]) {
      for (const { text } of await repeated(() => workers.ask(token, method, {}), 4))
        expect(text.replaceAll("notes.read", "")).not.toMatch(/note:|greet|hidden|notes\.\w/);
    }
    const session = (await workers.send(token, INITIALIZE)).session as string;
    const mine = { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
    await workers.send(token, { method: "notifications/initialized" }, mine);
    const subscribe = { id: 2, method: "resources/subscribe", params: { uri: "notes+note://shop/one" } };
    for (const { text } of await repeated(() => workers.send(token, subscribe, mine), 4))
      expect(text).toContain('"error"');
    expect(workers.shop.calls).toEqual([]);
  }, 120_000);
});

describe("streams", () => {
  it.each(["is revoked", "expires"])(
    "streams at every worker end when their key %s",
    async (how) => {
      const until = how === "expires" ? Date.now() + 20_000 : undefined;
      const { id, token } = await workers.keyOf("shop", `streams ${how}`.replace(/ /g, "-"), ALL, until);
      await workers.served(token);
      const ended: boolean[] = [];
      const watch = async (headers: Record<string, string>, body?: string): Promise<void> => {
        const at = ended.push(false) - 1;
        await new Promise<void>((resolve, reject) => {
          const all = {
            ...JSON_TYPE,
            accept: "text/event-stream, application/json",
            authorization: `Bearer ${token}`,
            ...headers,
          };
          const asked = request(
            new URL(workers.serving.url),
            { method: body === undefined ? "GET" : "POST", headers: all, agent: false },
            (response) => {
              expect(response.statusCode).toBe(200);
              response.resume().on("close", () => (ended[at] = true));
              resolve();
            },
          );
          asked.on("error", reject);
          asked.end(body);
        });
      };
      const params = { notifications: { toolsListChanged: true }, _meta: META };
      const modern = { "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen" };
      for (let i = 0; i < 4; i++) {
        await watch(modern, JSON.stringify({ jsonrpc: "2.0", id: i, method: "subscriptions/listen", params }));
        const session = (await workers.send(token, INITIALIZE)).session as string;
        await watch({ "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" });
      }
      if (how === "is revoked") {
        expect(ended).toEqual(ended.map(() => false));
        await workers.storage.keys.revoke(id, "test");
      }
      await expect.poll(() => ended.filter((each) => !each), { timeout: 40_000 }).toEqual([]);
    },
    90_000,
  );
});
