// Keys of the demonstration and of a module's server, through the real command. `portcullis key add local` needs no
// application to be created first, ends local access and what local callers have open, and leaves the demonstration.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { overTcp, overWebSocket } from "./one-message.js";
import { portcullis, type Ran, root, type Serving, serve } from "./serving.js";

let dir: string;
const running: Serving[] = [];
const closing: (() => void)[] = [];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-local-keys-"));
});
afterEach(async () => {
  for (const close of closing.splice(0)) close();
  await stop();
  rmSync(dir, { recursive: true, force: true });
});

async function start(...args: string[]): Promise<Serving> {
  const serving = await serve(["--log-level", "error", "--tcp-port", "0", "--ws-port", "0", ...args], { dir });
  running.push(serving);
  return serving;
}
async function stop(): Promise<void> {
  for (const each of running.splice(0)) await each.stop();
}
const cli = (...args: string[]): Ran => portcullis(["--json", "--dir", dir, ...args]);

function addKey(): { token: string; id: string } {
  const { code, stdout, stderr } = cli("key", "add", "local", "--name", "me", "--allow", "invoke(*)", "list");
  expect([code, code === 0 ? "" : stderr]).toEqual([0, ""]);
  const { token, key } = JSON.parse(stdout) as { token: string; key: { id: string } };
  return { token, id: key.id };
}

const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};
const CALL = {
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: { name: "math.add", arguments: { a: 1, b: 2 }, _meta: META },
};
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};

/** The answers of all three transports: `served`, or the error that says how to get a key. */
async function answers(serving: Serving, token?: string): Promise<string[]> {
  const [http, tcp, ws] = serving.urls as [string, string, string];
  const response = await fetch(new URL("/tools/math.add", http), {
    method: "POST",
    headers: { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) },
    body: '{"a":1,"b":2}',
  });
  const message = token ? { ...CALL, auth: { type: "bearer", token } } : CALL;
  const texts = [await response.text(), await overTcp(tcp, message), await overWebSocket(ws, message)];
  const isRefused = (text: string): boolean => text.includes("portcullis key add APP --name NAME");
  return texts.map((text, i) => {
    if (isRefused(text)) return i > 0 || response.status === 401 ? "refused" : `${response.status}`;
    return /(?<!\d)3(?!\d)/.test(text) && !text.includes('"error"') ? "served" : text;
  });
}
const SERVED = ["served", "served", "served"];
const REFUSED = ["refused", "refused", "refused"];

function moduleFile(): string {
  const file = join(dir, "module.mjs");
  writeFileSync(
    file,
    `import { createServer } from ${JSON.stringify(join(root, "dist", "server.js"))};
const server = createServer("mine");
server.tool("math.add", "adds", { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
  ({ a, b }) => String(a + b), { noGuardrailRequired: true });
export default server;
`,
  );
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  return file;
}

describe("a key of the application `local`", () => {
  it.each([
    ["the demonstration", (): string[] => []],
    ["the demonstration with --workers", (): string[] => ["--workers", "2"]],
    ["a module's server", (): string[] => [moduleFile()]],
  ])(
    "a key of the application `local` is accepted at once by %s, which refuses callers without one from then on [H4]",
    async (_of, args) => {
      let serving = await start(...args());
      expect(await answers(serving)).toEqual(SERVED);
      expect(JSON.parse(cli("key", "ls", "local").stdout)).toEqual([]);
      const { token, id } = addKey();
      expect(await answers(serving, token)).toEqual(SERVED);
      await expect.poll(() => answers(serving), { timeout: 10_000 }).toEqual(REFUSED);
      expect(JSON.parse(cli("key", "ls", "local").stdout)).toMatchObject([{ id, agent: "me" }]);
      expect(cli("key", "revoke", id).code).toBe(0);
      await expect.poll(() => answers(serving, token), { timeout: 10_000 }).toEqual(REFUSED);
      expect(await answers(serving)).toEqual(REFUSED);
      await stop();
      serving = await start(...args());
      expect(await answers(serving)).toEqual(REFUSED);
      const second = addKey();
      expect(await answers(serving, second.token)).toEqual(SERVED);
    },
  );

  it("a key of the application `local` is not created without permissions, and the error names the option", () => {
    const { code, stderr } = cli("key", "add", "local", "--name", "me");
    expect([code, stderr]).toEqual([64, expect.stringContaining("--allow")]);
    expect(JSON.parse(cli("app", "ls").stdout)).toEqual([]);
  });

  it("a key of the application `local` does not keep other applications from being served", async () => {
    const { token } = addKey();
    expect(cli("app", "add", "other").code).toBe(0);
    const serving = await start();
    expect(await answers(serving)).toEqual(REFUSED);
    for (const answer of await answers(serving, token)) expect(answer).toMatch(/unknown|not found|no tool/i);
  });
});

it("the first key names the applications that need a key from then on, and how clients send it", () => {
  expect(cli("app", "add", "blog").code).toBe(0);
  const first = cli("key", "add", "local", "--name", "me", "--allow", "list");
  expect(first.stderr).toContain("callers of blog, local now need a key each");
  expect(first.stderr).toContain("Authorization: Bearer KEY");
  expect(cli("key", "add", "local", "--name", "two", "--allow", "list").stderr).not.toContain("now need a key");
});

describe("what a local caller has open when the first key is added", () => {
  it.each([
    ["the demonstration", (): string[] => []],
    ["applications", (): string[] => ["--app", "local"]],
  ])(
    "the first key ends what a local caller has open in %s: event streams, WebSocket and TCP connections [H4]",
    async (_of, args) => {
      if (args().length > 0) expect(cli("app", "add", "local").code).toBe(0);
      const serving = await start(...args());
      const [http, tcp, ws] = serving.urls as [string, string, string];
      const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
      const begun = await fetch(http, { method: "POST", headers, body: JSON.stringify(INITIALIZE) });
      const session = begun.headers.get("mcp-session-id") as string;
      await begun.text();
      const stream = await fetch(http, { headers: { accept: "text/event-stream", "mcp-session-id": session } });
      expect(stream.status).toBe(200);
      const ended = [drained(stream), untilClosed(ws), untilTcpClosed(tcp)];
      await Promise.all(ended.map(({ open }) => open));
      addKey();
      await Promise.all(ended.map(({ closed }) => closed));
      expect((await fetch(http, { headers: { accept: "text/event-stream", "mcp-session-id": session } })).status).toBe(
        401,
      );
    },
  );
});

interface Open {
  readonly open: Promise<void>;
  readonly closed: Promise<void>;
}
function drained(stream: Response): Open {
  return { open: Promise.resolve(), closed: stream.text().then(() => {}) };
}
function untilClosed(url: string): Open {
  const socket = new WebSocket(url, "mcp");
  closing.push(() => socket.terminate());
  const closed = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  socket.on("open", () => socket.send(JSON.stringify(INITIALIZE)));
  return { open: new Promise((resolve) => socket.once("message", () => resolve())), closed };
}
function untilTcpClosed(url: string): Open {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  closing.push(() => socket.destroy());
  const closed = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  socket.write(`${JSON.stringify(INITIALIZE)}\n`);
  return { open: new Promise((resolve) => socket.once("data", () => resolve())), closed };
}
