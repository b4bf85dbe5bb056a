// Upstream servers, web pages and hidden tools at the workers of one gateway, attacked with the built command. A denial
// counts only when the server behind shows no effect.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { connect } from "../../src/mcp/client/index.js";
import { JSON_TYPE, repeated, statuses, WAIT, Workers } from "./worker-world.js";

const workers = new Workers();

beforeAll(() => workers.open(["--ws-port", "0"]), 180_000);
afterAll(() => workers.close());

describe("a server's request to a client", () => {
  it.each(["2026-07-28", "2025-11-25"] as const)(
    "a server's request to a client is denied and recorded at every worker, for clients of %s",
    async (revision) => {
      const { token } = await workers.keyOf("shop", `client-${revision}`);
      await expect.poll(() => statuses(() => workers.call(token, "asks.count", {})), WAIT).toEqual([200]);
      const asked: string[] = [];
      const handlers = {
        elicitation: () => (asked.push("elicitation"), { action: "accept" as const, content: {} }),
        sampling: () => (
          asked.push("sampling"), { role: "assistant", model: "m", content: { type: "text", text: "x" } }
        ),
        roots: () => (asked.push("roots"), [{ uri: "file:///home" }]),
      };
      const methods = {
        "elicitation/create": { message: "who?" },
        "sampling/createMessage": { messages: [], maxTokens: 5 },
        "roots/list": {},
      };
      const recorded = (): number =>
        [1, 2].flatMap((worker) =>
          workers
            .ledgerOf(worker)
            .split("\n")
            .filter(
              (line) => line.includes("server:asks") && line.includes(`client-${revision}`) && line.includes('"deny"'),
            ),
        ).length;
      for (let i = 0; i < 4; i++) {
        const headers = { authorization: `Bearer ${token}` };
        const client = await connect(workers.serving.url, { headers, revision, handlers: handlers as never });
        for (const [method, params] of Object.entries(methods))
          await client.callTool("asks.ask", { method, params }).catch(() => {});
        await client.close();
      }
      expect(asked).toEqual([]);
      await expect.poll(recorded, WAIT).toBe(12);
    },
    120_000,
  );
});

describe("a stdio server that each worker starts for itself", () => {
  it("a stdio server that each worker starts gets no call for a tool that another worker pinned differently, nor after a restart", async () => {
    const at = mkdtempSync(join(tmpdir(), "portcullis-pinned-workers-"));
    try {
      const args = [join(import.meta.dirname, "restarting-server.mjs"), at, "100"];
      const notes = { command: process.execPath, args, prefix: "pinned", noGuardrail: ["*"] };
      await workers.storage.applications.put("pinned", { servers: { pinned: notes } }, "test");
      const { token } = await workers.keyOf("pinned", "alice");
      await expect.poll(async () => (await workers.call(token, "pinned.send", {})).text, WAIT).toContain("1 send");
      const steady = async (): Promise<string> =>
        (await repeated(() => workers.call(token, "pinned.steady", {}))).map(({ text }) => text).join();
      await expect.poll(steady, WAIT).toMatch(/[2-9] steady/);
      // A server whose lists just changed is paused: the call that ends it may be refused for a while.
      const restarted = async (): Promise<number> => {
        await repeated(() => workers.call(token, "pinned.exit", {}), 2);
        await repeated(() => workers.call(token, "pinned.send", {}), 4);
        return Number(readFileSync(join(at, "starts"), "utf8"));
      };
      await expect.poll(restarted, WAIT).toBeGreaterThan(3);
      await repeated(() => workers.call(token, "pinned.send", {}));
      const reached = readFileSync(join(at, "calls"), "utf8").trim().split("\n");
      expect(reached.filter((line) => line.endsWith(" send") && line !== "1 send")).toEqual([]);
    } finally {
      await workers.storage.applications.remove("pinned", "test");
      rmSync(at, { recursive: true, force: true });
    }
  }, 180_000);
});

describe("a page of another origin", () => {
  it("a page of another origin calls no tool at any worker, over HTTP or WebSocket", async () => {
    const { token } = await workers.keyOf("shop", "browser");
    await workers.served(token);
    workers.shop.calls.length = 0;
    const types = { "content-type": "text/plain" };
    for (const headers of [
      { ...types, origin: "http://localhost:3000" },
      { ...JSON_TYPE, origin: "http://localhost:3000" },
      { ...JSON_TYPE, origin: "null" },
      { ...JSON_TYPE, "sec-fetch-site": "same-site" },
      { ...JSON_TYPE, "sec-fetch-site": "cross-site" },
      { ...JSON_TYPE, host: "rebound.example" },
    ] as Record<string, string>[]) {
      expect([headers, await statuses(() => workers.post("/tools/notes.read", token, headers, "{}"))]).toEqual([
        headers,
        [403],
      ]);
      expect([headers, await statuses(() => workers.post("/mcp", token, headers, "{}"))]).toEqual([headers, [403]]);
    }
    expect(await statuses(() => workers.post("/tools/notes.read", token, types, "{}"))).toEqual([415]);
    const upgraded = await repeated(
      () =>
        new Promise((resolve) => {
          const headers = { origin: "http://localhost:3000", authorization: `Bearer ${token}` };
          const socket = new WebSocket(workers.serving.urls[1] as string, "mcp", { headers });
          const end = (outcome: unknown): void => {
            socket.terminate();
            resolve(outcome);
          };
          socket.on("open", () => end("open"));
          socket.on("unexpected-response", (_request, response) => end(response.statusCode));
          socket.on("error", () => {});
        }),
    );
    expect(new Set(upgraded)).toEqual(new Set([403]));
    expect(workers.shop.calls).toEqual([]);
  }, 60_000);
});

describe("a hidden tool", () => {
  it("a hidden tool is answered like a missing one at every worker, whatever the Mcp-Param header says", async () => {
    const [{ token: full }, { token }] = [
      await workers.keyOf("shop", "sees"),
      await workers.keyOf("shop", "blind", ["invoke(notes.seen)"]),
    ];
    const region = (by: string, name: string, headers: Record<string, string>) =>
      workers.ask(by, "tools/call", { name, arguments: { region: "eu" } }, headers);
    const right = { "mcp-param-region": "eu" };
    await expect.poll(() => statuses(() => region(full, "notes.hidden", right)), WAIT).toEqual([200]);
    await expect.poll(() => statuses(() => region(token, "notes.seen", right)), WAIT).toEqual([200]);
    workers.shop.calls.length = 0;
    const plain = (text: string): string =>
      text.replace(/"trace_id":"[^"]*"/g, "").replaceAll(/notes\.(hidden|missin)/g, "x");
    for (const headers of [{}, right, { "mcp-param-region": "us" }, { "mcp-param-other": "eu" }] as Record<
      string,
      string
    >[]) {
      const missing = await region(token, "notes.missin", headers);
      for (const { status, text } of await repeated(() => region(token, "notes.hidden", headers), 4))
        expect([status, plain(text)]).toEqual([missing.status, plain(missing.text)]);
      if (headers !== right && !("mcp-param-other" in headers))
        for (const { text } of await repeated(() => region(token, "notes.seen", headers), 4))
          expect(text).toContain("mcp-param-region");
    }
    expect(workers.shop.calls.filter((name) => name === "hidden")).toEqual([]);
  }, 60_000);
});
