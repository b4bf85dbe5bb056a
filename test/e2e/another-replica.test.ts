// Two replicas behind a load balancer that knows nothing of sessions: whatever a client sends goes to either, and what a
// call waits for reaches it wherever it runs.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { type Deployment, deploy } from "./gateway-world.js";

type Json = Record<string, any>;

const POLICY = `permit (principal, action, resource);
  permit (principal, action == Action::"elicitation/create", resource);`;

const asking = join(import.meta.dirname, "asking.mjs");

describe.each(["postgres", "sqlite"] as const)("two replicas on one %s", (kind) => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-elsewhere-"));
  const seen = join(dir, "seen");
  let cluster: PostgresCluster | undefined;
  let a: Deployment;
  let b: Deployment;
  let token: string;
  let nextId = 1;

  beforeAll(async () => {
    writeFileSync(seen, "");
    writeFileSync(join(dir, "seal.key"), `${Buffer.alloc(32, 7).toString("base64")}\n`, { mode: 0o600 });
    cluster = kind === "postgres" ? await startPostgres() : undefined;
    const storage = cluster ? await cluster.database() : `sqlite:${join(dir, "store.db")}`;
    const start = (replica: string): Promise<Deployment> =>
      deploy(POLICY, { storage, replica, sealKey: `file:${join(dir, "seal.key")}` });
    a = await start("a");
    b = await start("b");
    // A server that was left hanging is not believed about whom it asks for a while: the others have one of their own.
    const server = { command: process.execPath, args: [asking, seen], noGuardrail: ["*"] };
    await a.put("asked", { servers: { up: server, left: server } });
    token = await a.key("asked", "bot");
  });
  afterAll(async () => {
    await a?.close();
    await b?.close();
    await cluster?.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  const marks = (): string[] => (existsSync(seen) ? readFileSync(seen, "utf8").trim().split("\n") : []);
  const counted = (mark: string): number => marks().filter((each) => each === mark).length;
  const until = async (check: () => boolean, ms = 60_000): Promise<void> => {
    for (const end = Date.now() + ms; !check(); await sleep(20)) if (Date.now() > end) throw new Error("not in time");
  };

  /** One exchange; its messages as they come. */
  async function exchange(
    at: Deployment,
    init: { body?: Json; headers?: Record<string, string>; signal?: AbortSignal },
  ) {
    const response = await fetch(at.url, {
      method: init.body ? "POST" : "GET",
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...init.headers,
      },
      ...(init.body ? { body: JSON.stringify(init.body) } : {}),
      ...(init.signal ? { signal: init.signal } : {}),
    });
    const messages: Json[] = [];
    const ids: string[] = [];
    const done = (async () => {
      let rest = "";
      const isStream = response.headers.get("content-type")?.includes("event-stream");
      for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
        rest += Buffer.from(chunk).toString();
        const parts = isStream ? rest.split("\n\n") : [rest];
        rest = isStream ? (parts.pop() as string) : rest;
        for (const part of isStream ? parts : []) {
          const id = /^id: ?(.*)$/m.exec(part)?.[1];
          const data = /^data: ?(.*)$/m.exec(part)?.[1];
          if (id) ids.push(id);
          if (data) messages.push(JSON.parse(data) as Json);
        }
      }
      if (!isStream && rest !== "") messages.push(JSON.parse(rest) as Json);
    })().catch(() => {});
    return { status: response.status, session: response.headers.get("mcp-session-id"), messages, ids, done };
  }

  /** The call of a 2026-07-28 client; the last message is the answer. */
  async function modern(at: Deployment, tool: string, more: Json = {}, signal?: AbortSignal) {
    const { arguments: args = {}, ...params } = more;
    const answered = await exchange(at, {
      headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool },
      body: {
        jsonrpc: "2.0",
        id: nextId++,
        method: "tools/call",
        params: {
          name: tool,
          arguments: args,
          ...params,
          _meta: {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { elicitation: {} },
            "io.modelcontextprotocol/logLevel": "info",
            progressToken: "p",
          },
        },
      },
      ...(signal ? { signal } : {}),
    });
    await answered.done;
    const last = answered.messages.at(-1);
    const notes = answered.messages.slice(0, -1).map(({ method }) => method as string);
    return { result: last?.result as Json, error: last?.error as Json, notes };
  }

  const answersTo = (result: Json, content: Json): Json => ({
    requestState: result.requestState,
    inputResponses: Object.fromEntries(
      Object.keys(result.inputRequests as Json).map((key) => [key, { action: "accept", content }]),
    ),
  });

  describe("2026-07-28", () => {
    it("a call continues with elicitation answers that arrived at the other replica, one after the other [H12]", async () => {
      const first = await modern(a, "up.ask");
      expect(first.result.resultType).toBe("input_required");
      const second = await modern(b, "up.ask", answersTo(first.result, { n: 1 }));
      expect(second.result.resultType, JSON.stringify(second)).toBe("input_required");
      expect(second.notes).toEqual(["notifications/progress", "notifications/message"]);
      const third = await modern(a, "up.ask", answersTo(second.result, { n: 2 }));
      expect(third.result.structuredContent).toEqual({ first: { n: 1 }, second: { n: 2 } });
      const [, again] = [
        await modern(a, "up.ask", answersTo(second.result, { n: 3 })),
        await modern(b, "up.ask", answersTo(first.result, { n: 4 })),
      ];
      expect(again.error.message ?? again.error.data.reason).toContain("already used");
      expect(counted("call ask")).toBe(1);
      expect(counted("done ask")).toBe(1);
    });

    it("one of many concurrent requests with the same answers at two replicas continues the call", async () => {
      const before = counted("done ask");
      const first = await modern(a, "up.ask", { arguments: { once: true } });
      const answers = { arguments: { once: true }, ...answersTo(first.result, { n: 1 }) };
      const all = await Promise.all(Array.from({ length: 8 }, (_, i) => modern(i % 2 ? a : b, "up.ask", answers)));
      expect(all.filter(({ result }) => result?.structuredContent !== undefined)).toHaveLength(1);
      expect(all.filter(({ error }) => error?.code === -32602)).toHaveLength(7);
      expect(counted("done ask")).toBe(before + 1);
    });

    it("a client that disconnects from the other replica ends the call", async () => {
      const [before, hanging] = [counted("cancelled"), counted("hangs")];
      const first = await modern(a, "left.ask", { arguments: { hang: true } });
      const abort = new AbortController();
      const more = { arguments: { hang: true }, ...answersTo(first.result, {}) };
      // The end may come before the head of the answer.
      const left = modern(b, "left.ask", more, abort.signal).catch(() => {});
      await until(() => counted("hangs") === hanging + 1);
      expect(counted("cancelled")).toBe(before);
      abort.abort();
      await left;
      await until(() => counted("cancelled") === before + 1);
    });
  });

  describe("2025-11-25", () => {
    let session: string;
    const post = (at: Deployment, body: Json, signal?: AbortSignal) =>
      exchange(at, {
        body: { jsonrpc: "2.0", ...body },
        headers: { "mcp-protocol-version": "2025-11-25", ...(session ? { "mcp-session-id": session } : {}) },
        ...(signal ? { signal } : {}),
      });
    const get = (at: Deployment, headers: Record<string, string> = {}, signal?: AbortSignal) =>
      exchange(at, {
        headers: { "mcp-protocol-version": "2025-11-25", "mcp-session-id": session, ...headers },
        ...(signal ? { signal } : {}),
      });
    const callAt = (at: Deployment, name: string, signal?: AbortSignal, args: Json = {}) => {
      const params = { name, arguments: args, _meta: { progressToken: "p" } };
      return post(at, { id: nextId++, method: "tools/call", params }, signal);
    };
    const questionIn = (messages: readonly Json[], nth: number): Json | undefined =>
      messages.filter(({ method }) => method === "elicitation/create")[nth];

    beforeAll(async () => {
      session = "";
      const capabilities = { elicitation: {} };
      const clientInfo = { name: "test", version: "1" };
      const params = { protocolVersion: "2025-11-25", capabilities, clientInfo };
      const opened = await post(a, { id: nextId++, method: "initialize", params });
      await opened.done;
      session = opened.session as string;
      expect((await post(b, { method: "notifications/initialized" })).status).toBe(202);
    });

    it("answers of a session reach the call whichever replica they are sent to [H12]", async () => {
      const running = await callAt(a, "up.ask");
      for (const [nth, at] of [b, a].entries()) {
        await until(() => questionIn(running.messages, nth) !== undefined);
        const { id } = questionIn(running.messages, nth) as Json;
        const sent = await post(at, { id, result: { action: "accept", content: { nth } } });
        expect(sent.status).toBe(202);
      }
      await running.done;
      expect(running.messages.at(-1)?.result.structuredContent).toEqual({ first: { nth: 0 }, second: { nth: 1 } });
    });

    it("an answer of another caller or to an unknown request is dropped", async () => {
      const running = await callAt(a, "up.ask", undefined, { once: true });
      await until(() => questionIn(running.messages, 0) !== undefined);
      const { id } = questionIn(running.messages, 0) as Json;
      const mine = token;
      token = await a.key("asked", "other");
      expect((await post(b, { id, result: { action: "accept", content: { who: "other" } } })).status).toBe(404);
      token = mine;
      for (const made of [`q99~${a.runtime.storage.origin}`, "q0~nobody", "q0"]) {
        expect((await post(b, { id: made, result: { action: "accept", content: { made } } })).status).toBe(202);
      }
      await post(b, { id, result: { action: "accept", content: { who: "me" } } });
      await running.done;
      expect(running.messages.at(-1)?.result.structuredContent.first).toEqual({ who: "me" });
    });

    it("a cancellation stops the call that runs at the other replica [H12]", async () => {
      const before = counted("cancelled");
      const id = nextId;
      const running = await callAt(a, "left.hang");
      await until(() => running.messages.length > 0);
      await post(b, { method: "notifications/cancelled", params: { requestId: id, reason: "enough" } });
      await running.done;
      await until(() => counted("cancelled") === before + 1);
    });

    it("a stream that was lost continues at the other replica, including the answer [H12]", async () => {
      const abort = new AbortController();
      const running = await callAt(a, "up.ask", abort.signal, { once: true });
      await until(() => questionIn(running.messages, 0) !== undefined);
      const { id } = questionIn(running.messages, 0) as Json;
      abort.abort();
      await running.done;
      const taken = await get(b, { "last-event-id": running.ids[0] as string });
      expect(taken.status).toBe(200);
      await until(() => questionIn(taken.messages, 0) !== undefined);
      await post(a, { id, result: { action: "accept", content: { late: true } } });
      await taken.done;
      expect(taken.messages.at(-1)?.result.structuredContent.first).toEqual({ late: true });
      expect(taken.messages[0]).toEqual(questionIn(running.messages, 0));
      const unknown = await get(b, { "last-event-id": `s99~${a.runtime.storage.origin}.0` });
      expect(unknown.status).toBe(400);
      const gone = await get(b, { "last-event-id": "s0~nobody.0" });
      expect(gone.status).toBe(400);
    });

    it("a session receives notifications at the replica where it listens, and its log level holds at every replica", async () => {
      const resources = await post(a, { id: nextId++, method: "resources/list" });
      await resources.done;
      const uris = (resources.messages[0]?.result.resources as Json[]).map((each) => each.uri as string);
      const uri = uris.find((each) => each.includes("up")) as string;
      const abort = new AbortController();
      const listening = await get(b, {}, abort.signal);
      const subscribed = await post(a, { id: nextId++, method: "resources/subscribe", params: { uri } });
      await subscribed.done;
      expect(subscribed.messages[0]).toHaveProperty("result");
      const updates = (): number => listening.messages.filter(({ params }) => params?.uri === uri).length;
      for (let i = 0; i < 50 && updates() === 0; i++) {
        await (await callAt(b, "up.touch")).done;
        await sleep(50);
      }
      expect(updates()).toBeGreaterThan(0);
      await (await post(a, { id: nextId++, method: "resources/unsubscribe", params: { uri } })).done;
      // What was on its way still comes.
      const comesNoMore = async (): Promise<boolean> => {
        const before = updates();
        await (await callAt(b, "up.touch")).done;
        await sleep(300);
        return updates() === before;
      };
      await expect.poll(comesNoMore).toBe(true);
      expect(await comesNoMore()).toBe(true);
      abort.abort();

      await (await post(a, { id: nextId++, method: "logging/setLevel", params: { level: "error" } })).done;
      const methodsOfCall = async (): Promise<string[]> => {
        const running = await callAt(b, "up.ask", undefined, { once: true });
        await until(() => questionIn(running.messages, 0) !== undefined);
        const { id } = questionIn(running.messages, 0) as Json;
        await post(a, { id, result: { action: "accept", content: {} } });
        await running.done;
        return running.messages.map(({ method }) => method as string);
      };
      await expect.poll(methodsOfCall).not.toContain("notifications/message");
    });
  });

  it("a call that waited at a replica that has ended returns an error", async () => {
    const first = await modern(a, "up.ask");
    await a.close();
    const second = await modern(b, "up.ask", answersTo(first.result, {}));
    expect(JSON.stringify(second.error)).toContain("begin it again");
  });
});
