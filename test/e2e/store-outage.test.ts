// A store that refuses connections, and one that accepts them and never answers: every entry point reports an outage
// that passes, in bounded time, and never a denial.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newToken } from "../../src/auth/api-keys/create.js";
import { createKey } from "../../src/auth/index.js";
import { type FaultyLine, faultyLine } from "../../src/storage/fixtures/faulty-line.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";
import { root } from "./serving.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;
/** Two seconds by requirement; the rest is for a loaded machine. Without a bound it took the statement timeout, 12 s. */
const MAX_MS = 5_000;
const MODERN = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};

let line: FaultyLine;
let replicas: Replicas;
let replica: Replica;
let storage: Storage;
let downstream: Counting;
let token: string;
let session: string;

async function post(url: string, body: object, headers: Record<string, string>): Promise<Response> {
  return await fetch(url, {
    method: "POST",
    signal: AbortSignal.timeout(60_000),
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify(body),
  });
}

const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` });
let nextId = 0;
const message = (method: string, params: object): object => ({ jsonrpc: "2.0", id: nextId++, method, params });

function modern(key: string, name: string): Promise<Response> {
  const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name };
  const params = { name, arguments: { text: "outage" }, _meta: MODERN };
  return post(replica.url, message("tools/call", params), { ...bearer(key), ...headers });
}

function legacy(method: string, params: object, id?: string): Promise<Response> {
  const headers = { ...bearer(token), "mcp-protocol-version": "2025-11-25" };
  return post(replica.url, message(method, params), {
    ...headers,
    ...(id === undefined ? {} : { "mcp-session-id": id }),
  });
}

const initialize = (): Promise<Response> =>
  legacy("initialize", {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "test", version: "1.0.0" },
  });

function admin(path: string): Promise<Response> {
  const operator = readFileSync(join(replicas.dir, "operator.token"), "utf8").trim();
  return fetch(`${replica.admin}${path}`, { headers: bearer(operator), signal: AbortSignal.timeout(60_000) });
}

interface Ran {
  readonly code: number;
  readonly stderr: string;
}

function run(...args: string[]): Promise<Ran> {
  const command = [join(root, "dist", "cli", "main.js"), "--dir", replicas.dir, ...args];
  return new Promise((resolve) => {
    execFile(process.execPath, command, { timeout: 60_000 }, (error, _, stderr) =>
      resolve({ code: typeof error?.code === "number" ? error.code : error ? -1 : 0, stderr }),
    );
  });
}

/** The error object, wherever the entry point has it. */
function errorIn(text: string): { code?: string; retryable?: boolean } {
  const data = text.startsWith("event:") || text.startsWith("id:") ? (/^data: (.*)$/m.exec(text)?.[1] ?? "{}") : text;
  const body = JSON.parse(data) as {
    error?: { data?: object; code?: unknown };
    result?: { structuredContent?: object; _meta?: { "portcullis/error"?: object } };
  };
  const { error, result } = body;
  return (error?.data ?? error ?? result?.structuredContent ?? result?._meta?.["portcullis/error"] ?? body) as object;
}

async function until(isSo: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error(`timed out: ${what}`);
    await sleep(50);
  }
}

beforeAll(async () => {
  downstream = await counting("outage");
  replicas = await startReplicas(1, POLICY, [], {
    line: async (direct) => {
      line = await faultyLine(direct);
      return line.url;
    },
  });
  [replica] = replicas.all as [Replica];
  storage = await openStorage(replicas.storage);
  await storage.applications.put("busy", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const request = { app: "busy", name: "worker", permissions: ["invoke(*)", "list"] };
  token = (await createKey(storage.keys, request, "test")).token;
  await until(async () => (await modern(token, "read")).status === 200, "a first call");
  const opened = await initialize();
  session = opened.headers.get("mcp-session-id") as string;
  await opened.text();
  const headers = { ...bearer(token), "mcp-protocol-version": "2025-11-25", "mcp-session-id": session };
  await post(replica.url, { jsonrpc: "2.0", method: "notifications/initialized" }, headers);
}, 120_000);
afterAll(async () => {
  await storage?.close();
  await replicas?.close();
  await line?.close();
  await downstream?.close();
});

describe.each(["refuse", "swallow"] as const)("a store whose connections are cut (%s)", (how) => {
  // The store has to be asked about it.
  const unknown = newToken("caller").text;
  beforeAll(async () => {
    await until(async () => (await admin("/readyz")).status === 200, "ready");
    await line.cut(how);
  });
  afterAll(async () => {
    await line.mend();
    await until(async () => (await admin("/readyz")).status === 200, "ready again");
  });

  const call = { name: "write", arguments: { text: "outage" } };
  const unread = "5b9c7b3e-0000-4000-8000-000000000000";
  const entryPoints: Record<string, () => Promise<Response>> = {
    "a modern call that needs an approval": () => modern(token, "write"),
    "a modern call with a key that has to be read": () => modern(unknown, "read"),
    "a legacy call that needs an approval": () => legacy("tools/call", call, session),
    "a legacy session that begins": initialize,
    "a legacy session that has to be read": () => legacy("tools/call", call, unread),
    "POST /tools/{name}": () => post(new URL("/tools/write", replica.url).href, { text: "outage" }, bearer(token)),
    "the approvals at the admin port": () => admin("/v1/approvals"),
  };

  it("a store outage is reported by every entry point as 503 UNAVAILABLE, retryable, with Retry-After, in bounded time [U7]", async () => {
    const reached = downstream.calls.length;
    const answers = await Promise.all(
      Object.entries(entryPoints).map(async ([name, ask]) => {
        const began = performance.now();
        const answer = await ask();
        const { code, retryable } = errorIn(await answer.text());
        const isInTime = performance.now() - began < MAX_MS;
        return { name, status: answer.status, retry: answer.headers.get("retry-after"), code, retryable, isInTime };
      }),
    );
    expect(answers).toEqual(
      Object.keys(entryPoints).map((name) => ({
        name,
        status: 503,
        retry: "1",
        code: "UNAVAILABLE",
        retryable: true,
        isInTime: true,
      })),
    );
    expect(downstream.calls.length).toBe(reached);
  });

  it("a store outage is reported by commands that use the store, with the exit code of an error", async () => {
    const commands = [
      ["app", "ls", "--storage", line.url],
      ["approvals", "ls", "--admin", replica.admin],
    ];
    for (const { code, stderr } of await Promise.all(commands.map((args) => run(...args)))) {
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringMatching(/not answer/) });
    }
  });
});
