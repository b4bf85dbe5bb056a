// Three replicas on one PostgreSQL behind a balancer that follows `/readyz` with a lag of one second.

import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage } from "../../src/storage/index.js";
import { startBalancer } from "./balancer.js";
import { counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";

const CALLERS = 6;
const LAG_MS = 1_000;
/** Long enough for a busy machine: the balancer has to notice within it. */
const DELAY_SECONDS = 5;
const TEXT = { type: "object", properties: { text: { type: "string" } } } as const;

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

async function until(isSo: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`timed out: ${what}`);
    await sleep(50);
  }
}

let nextId = 0;
async function call(url: string, token: string, name: string, text: string): Promise<string> {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  try {
    const response = await fetch(url, {
      method: "POST",
      signal: AbortSignal.timeout(45_000),
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": name,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: nextId++,
        method: "tools/call",
        params: { name, arguments: { text }, _meta: meta },
      }),
    });
    const body = (await response.json()) as { result?: { isError?: boolean } };
    return body.result !== undefined && body.result.isError !== true
      ? "ok"
      : `${response.status} ${JSON.stringify(body)}`;
  } catch (error) {
    return `${(error as Error).message} ${((error as Error).cause as Error | undefined)?.message ?? ""}`;
  }
}

/** A client of 2025-11-25: one session for all its calls, and its event stream, which it opens again when it ends. */
async function legacyClient(url: string, token: string) {
  const headers = (session?: string): Record<string, string> => ({
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
    ...(session === undefined ? {} : { "mcp-session-id": session }),
  });
  const post = (body: object, session?: string): Promise<Response> =>
    fetch(url, { method: "POST", headers: headers(session), body: JSON.stringify({ jsonrpc: "2.0", ...body }) });
  const clientInfo = { name: "test", version: "1.0.0" };
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  const begun = await post({ id: nextId++, method: "initialize", params });
  const session = begun.headers.get("mcp-session-id") as string;
  await begun.text();
  await (await post({ method: "notifications/initialized" }, session)).text();
  return {
    async call(name: string, text: string): Promise<string> {
      const answer = await post({ id: nextId++, method: "tools/call", params: { name, arguments: { text } } }, session);
      const body = await answer.text();
      return body.includes('"counted"') ? "ok" : `${answer.status} ${body}`;
    },
    /** Resolves with the status when the stream has ended. */
    async stream(onOpen: () => void): Promise<number> {
      const answer = await fetch(url, { headers: { ...headers(session), accept: "text/event-stream" } });
      if (answer.status === 200) onOpen();
      await answer.text();
      return answer.status;
    },
  };
}

async function isClosed(url: string): Promise<boolean> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  try {
    return await new Promise((resolve) => {
      socket.once("connect", () => resolve(false)).once("error", () => resolve(true));
    });
  } finally {
    socket.destroy();
  }
}

async function readiness(replicas: Replicas, replica: Replica): Promise<{ status: number; components: object }> {
  const token = readFileSync(join(replicas.dir, "operator.token"), "utf8").trim();
  const answer = await fetch(`${replica.admin}/readyz`, { headers: { authorization: `Bearer ${token}` } });
  const { components } = (await answer.json()) as { components: object };
  return { status: answer.status, components };
}

it("a rolling restart of three replicas under load behind a balancer fails no call, session or stream [G5]", async () => {
  const reached = new Map<string, number>();
  const begun = new Set<string | undefined>();
  let end = (): void => undefined;
  let over: Promise<void> = Promise.resolve();
  const downstream = await counting("rolling", (server) => {
    const options = { noGuardrailRequired: true } as const;
    const note = (text = ""): void => void reached.set(text, (reached.get(text) ?? 0) + 1);
    server.tool("count", "counts", TEXT, ({ text }) => (note(text), "counted"), options);
    server.tool(
      "slow",
      "takes long",
      TEXT,
      async ({ text }) => (begun.add(text), await over, note(text), "done"),
      options,
    );
  });
  opened.push(() => downstream.close());
  const replicas = await startReplicas(3, "permit (principal, action, resource);", [
    "--shutdown-delay",
    String(DELAY_SECONDS),
  ]);
  opened.push(() => replicas.close());
  const storage = await openStorage(replicas.storage);
  opened.push(() => storage.close());
  await storage.applications.put("busy", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const request = { app: "busy", agent: "worker", name: "worker", permissions: ["invoke(*)"] };
  const { token } = await createKey(storage.keys, request, "test");
  for (const replica of replicas.all) {
    await until(
      async () => (await call(replica.url, token, "count", "warm-up")) === "ok",
      "a first call at each replica",
    );
  }
  const balancer = await startBalancer(replicas.all, LAG_MS);
  opened.push(() => balancer.close());
  await until(() => balancer.inUse.length === 3, "three replicas in use");

  let isOver = false;
  const failed: string[] = [];
  let sent = 0;
  const caller = async (id: number): Promise<void> => {
    for (let n = 0; !isOver; n++, sent++) {
      const answer = await call(balancer.url, token, "count", `${id}-${n}`);
      if (answer !== "ok") failed.push(answer);
      await sleep(5);
    }
  };
  const legacy = await legacyClient(balancer.url, token);
  let streams = 0;
  const streaming = async (): Promise<void> => {
    while (!isOver) {
      const status = await legacy.stream(() => streams++).catch((error: Error) => error.message);
      // The balancer is closed in the end, with the stream open.
      if (status !== 200 && !isOver) failed.push(`event stream: ${status}`);
    }
  };
  void streaming();
  const legacyCaller = async (): Promise<void> => {
    for (let n = 0; !isOver; n++, sent++) {
      const answer = await legacy.call("count", `legacy-${n}`).catch((error: Error) => error.message);
      if (answer !== "ok") failed.push(`legacy: ${answer}`);
      await sleep(20);
    }
  };
  const callers = [...Array.from({ length: CALLERS }, (_, id) => caller(id)), legacyCaller()];
  await until(() => streams === 1, "the event stream is open");
  const slow: Promise<string>[] = [];
  for (const replica of replicas.all) {
    // Longer than the delay: it is still running when the listeners close.
    over = new Promise((resolve) => {
      end = resolve;
    });
    slow.push(call(replica.url, token, "slow", `slow-${replica.name}`));
    await until(() => begun.has(`slow-${replica.name}`), "the slow call has begun");
    const stopped = replicas.stop(replica);
    await until(async () => (await readiness(replicas, replica)).status === 503, "readiness fails first");
    expect(await call(replica.url, token, "count", `late-${replica.name}`)).toBe("ok");
    await until(() => isClosed(replica.url), "the listener is closed");
    end();
    expect(await stopped).toBe(0);
    expect(reached.get(`slow-${replica.name}`)).toBe(1);
    await replicas.start(replica);
    await until(() => balancer.inUse.includes(replica.name), "the replica is in use again");
  }
  isOver = true;
  await Promise.all(callers);
  expect(await Promise.all(slow)).toEqual(["ok", "ok", "ok"]);
  expect({ failed, failures: balancer.failures }).toEqual({ failed: [], failures: [] });
  expect(sent).toBeGreaterThan(100);
  // Every replica was stopped, so the one that had the stream was: the client has it at another one.
  expect(streams).toBeGreaterThan(1);
  expect([...reached.entries()].filter(([text, times]) => text !== "warm-up" && times !== 1)).toEqual([]);
}, 240_000);

it("readiness reports the store and its feed as not ready while PostgreSQL does not answer, and recovers [G5]", async () => {
  const replicas = await startReplicas(1, "permit (principal, action, resource);");
  opened.push(() => replicas.close());
  const [replica] = replicas.all as [Replica];
  await until(async () => (await readiness(replicas, replica)).status === 200, "ready");
  replicas.postgres.pause();
  try {
    await until(async () => {
      const { components } = await readiness(replicas, replica);
      const { store, feed } = components as { store: { ready: boolean }; feed: { ready: boolean } };
      return !store.ready && !feed.ready;
    }, "store and feed not ready");
    const anonymous = await fetch(`${replica.admin}/readyz`);
    expect([anonymous.status, await anonymous.json()]).toEqual([503, { ready: false }]);
    expect((await fetch(`${replica.admin}/livez`)).status).toBe(200);
  } finally {
    replicas.postgres.resume();
  }
  await until(async () => (await readiness(replicas, replica)).status === 200, "ready again");
}, 120_000);
