// Local access through the real command: it is on for a new data directory on loopback, and ends for good with the first
// key or issuer. A refused call must not reach the server behind.

import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { overTcp, overWebSocket } from "./one-message.js";
import { portcullis, type Ran, type Serving, serve } from "./serving.js";

let dir: string;
let upstream: Counting;
const running: Serving[] = [];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-local-access-"));
  upstream = await counting("local");
});
afterEach(async () => {
  for (const each of running.splice(0)) await each.stop();
  await upstream.close();
  rmSync(dir, { recursive: true, force: true });
});

async function start(...args: string[]): Promise<Serving> {
  const serving = await serve(["--log-level", "error", ...args], { dir });
  running.push(serving);
  return serving;
}
async function stop(): Promise<void> {
  for (const each of running.splice(0)) await each.stop();
}
const cli = (...args: string[]): Ran => portcullis(["--json", "--dir", dir, ...args]);

/** An application `local` whose one server counts. */
async function applications(): Promise<void> {
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  await storage.applications.put("local", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
  await storage.applications.put("other", {}, "test");
  await storage.close();
}
function addKey(...more: string[]): { token: string; id: string } {
  const { code, stdout, stderr } = cli("key", "add", "local", "--name", "me", "--allow", "invoke(*)", "list", ...more);
  expect([code, stderr.includes("shown now")]).toEqual([0, true]);
  const { token, key } = JSON.parse(stdout) as { token: string; key: { id: string } };
  return { token, id: key.id };
}

interface Answer {
  status: number;
  text: string;
}
async function call(serving: Serving, headers: Record<string, string> = {}, tool = "read"): Promise<Answer> {
  const response = await fetch(new URL(`/tools/${tool}`, serving.url), {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: tool === "read" ? '{"text":"x"}' : '{"a":1,"b":2}',
  });
  return { status: response.status, text: await response.text() };
}
/** Both entry points answer 401 with the remedy, and nothing reached the server. */
async function expectRefused(serving: Serving, headers: Record<string, string> = {}): Promise<void> {
  // The gateway reads a change when the file of the store changes, which may be a moment after the command has ended.
  await expect.poll(async () => (await call(serving, headers)).status, { timeout: 5_000 }).toBe(401);
  upstream.calls.length = 0;
  const answer = await call(serving, headers);
  expect([answer.status, upstream.calls]).toEqual([401, []]);
  expect(answer.text).toMatch(/credential|authentication required/);
  const mcp = await fetch(serving.url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-11-25" } }),
  });
  expect(mcp.status).toBe(401);
  await mcp.text();
}
async function expectServed(serving: Serving, headers: Record<string, string> = {}): Promise<void> {
  upstream.calls.length = 0;
  expect([(await call(serving, headers)).status, upstream.calls]).toEqual([200, ["read"]]);
}

describe("local access", () => {
  it("local access is on in a new data directory and is ended at once by the first key, for good [H4]", async () => {
    await applications();
    let serving = await start();
    await expectServed(serving);
    const { token, id } = addKey();
    await expectRefused(serving);
    await expectServed(serving, { authorization: `Bearer ${token}` });
    expect(cli("key", "revoke", id).code).toBe(0);
    await expectRefused(serving);
    await stop();
    serving = await start();
    await expectRefused(serving);
    expect((await call(serving)).text).toContain("portcullis key add APP");
  });

  it("local access does not return when the last key expires [H4]", async () => {
    await applications();
    const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
    const key = { id: "pk_a", app: "local", agent: "a", name: "a", prefix: "pk_a", permissions: ["list"], limits: {} };
    await storage.keys.add({ ...key, hash: "0".repeat(64), expiresAt: Date.now() - 1 }, "test");
    await storage.close();
    await expectRefused(await start());
  });

  it("local access does not return when the application of the last key is removed [H4]", async () => {
    await applications();
    expect(cli("key", "add", "other", "--name", "me", "--allow", "list").code).toBe(0);
    const serving = await start();
    await expectRefused(serving);
    expect(cli("app", "rm", "other", "--yes").code).toBe(0);
    await expectRefused(serving);
    await stop();
    await expectRefused(await start());
  });

  it("local access does not return when the issuer is removed from the configuration [H4]", async () => {
    await applications();
    const issuers = join(dir, "oauth.yaml");
    writeFileSync(
      issuers,
      `resource: https://gateway.example/mcp
issuers:
  - { issuer: "http://127.0.0.1:9/", app: local }
`,
    );
    await expectRefused(await start("--oauth", issuers));
    await stop();
    await expectRefused(await start());
  });

  it.each([
    ["a copy of its file", () => {}],
    ["a restore of a backup after it was lost", () => restored()],
  ])(
    "local access does not return, and a halt stays, when the store is put back to before them by %s [H4]",
    async (_, put) => {
      await applications();
      expect(cli("backup", "create", "--without-keys", join(dir, "b.backup")).code).toBe(0);
      const store = join(dir, "portcullis.db");
      cpSync(store, `${store}.old`);
      const { id } = addKey();
      await expectRefused(await start());
      expect(cli("key", "revoke", id).code).toBe(0);
      expect(cli("halt", "--app", "other").code).toBe(0);
      await stop();
      for (const ending of ["", "-wal", "-shm"]) rmSync(`${store}${ending}`, { force: true });
      cpSync(`${store}.old`, store);
      put();
      await expectRefused(await start());
      await stop();
      expect(cli("halt", "ls").stdout).toContain('"app=other"');
      await expectRefused(await start());
    },
  );
  const restored = (): void => {
    rmSync(join(dir, "portcullis.db"));
    expect(cli("restore", join(dir, "b.backup"), "--replace").code).toBe(0);
  };

  it("local access ends on every worker with the first key [H4]", async () => {
    await applications();
    const serving = await start("--workers", "2");
    await expectServed(serving);
    addKey();
    // Connections are not kept, so the workers take turns.
    for (let i = 0; i < 6; i++) await expectRefused(serving, { connection: "close" });
  });

  it("local access is never granted to a request that was forwarded by a proxy [H4]", async () => {
    await applications();
    const serving = await start();
    for (const header of [
      "Forwarded",
      "X-Forwarded-For",
      "X-Forwarded-Host",
      "X-Forwarded-Proto",
      "X-Real-IP",
      "Via",
      "CF-Connecting-IP",
      "True-Client-IP",
    ]) {
      await expectRefused(serving, { [header]: "for=203.0.113.7" });
    }
    await expectServed(serving);
  });

  it("local access is never granted when --allow-host or --public-url names another host [H4]", async () => {
    await applications();
    await expectRefused(await start("--allow-host", "gate.example.com", "localhost", "127.0.0.1"));
    await stop();
    await expectRefused(await start("--public-url", "https://gate.example.com/mcp"));
    await stop();
    await expectServed(await start("--allow-host", "localhost", "127.0.0.1"));
  });

  it("local access is switched off and on by the operator, and on only while no credential was configured", async () => {
    await applications();
    await expectRefused(await start("--no-local-access"));
    await stop();
    await expectRefused(await start());
    await stop();
    await expectServed(await start("--local-access"));
    await stop();
    addKey();
    await expect(start("--local-access")).rejects.toThrow(/a key or an issuer was configured for this store/);
    await expect(start("--local-access", "--host", "0.0.0.0")).rejects.toThrow(/does not listen on a loopback address/);
  });

  it("local access is stated at start-up with its meaning and how to switch it off", async () => {
    const { stdout } = await textOf(["--port", "0", "--admin-port", "0"]);
    expect(stdout).toContain("Local access is on");
    expect(stdout).toContain("--no-local-access");
  });
});

async function textOf(args: string[]): Promise<{ stdout: string }> {
  const { spawn } = await import("node:child_process");
  const { root } = await import("./serving.js");
  const child = spawn(process.execPath, [join(root, "dist", "cli", "main.js"), "--dir", dir, "serve", ...args]);
  const exited = new Promise((resolve) => child.on("exit", resolve));
  let stdout = "";
  await new Promise<void>((resolve) => {
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk.toString("utf8");
      if (stdout.includes("Stop with Ctrl-C")) resolve();
    });
    void exited.then(() => resolve());
  });
  child.kill("SIGTERM");
  await exited;
  return { stdout };
}

const CALL = {
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    name: "math.add",
    arguments: { a: 1, b: 2 },
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
};

describe("a module's server", () => {
  const module = (): string => {
    const file = join(dir, "module.mjs");
    const { root } = { root: join(import.meta.dirname, "..", "..") };
    writeFileSync(
      file,
      `import { writeFileSync } from "node:fs";
import { createServer, permitAll } from ${JSON.stringify(join(root, "dist", "server.js"))};
const server = createServer("mine");
server.tool("math.add", "adds", { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
  ({ a, b }) => { writeFileSync(${JSON.stringify(join(dir, "effect"))}, "ran"); return String(a + b); }, { noGuardrailRequired: true });
export default server;
`,
    );
    mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
    writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
    return file;
  };
  const hasRun = async (): Promise<boolean> => (await import("node:fs")).existsSync(join(dir, "effect"));

  it("a module's server serves no caller without a credential on an address that is not loopback, on HTTP, TCP and WebSocket [H4]", async () => {
    const serving = await start(module(), "--host", "0.0.0.0", "--tcp-port", "0", "--ws-port", "0");
    const [, tcp, ws] = serving.urls as [string, string, string];
    const url = serving.url.replace("0.0.0.0", "127.0.0.1");
    const here = { ...serving, url };
    expect((await call(here, {}, "math.add")).status).toBe(401);
    expect(await overTcp(tcp, CALL)).toContain("UNAUTHENTICATED");
    expect(await overWebSocket(ws, CALL)).toContain("UNAUTHENTICATED");
    const outside = Object.values(networkInterfaces())
      .flat()
      .find((each) => each && !each.internal && each.family === "IPv4")?.address;
    if (outside !== undefined) {
      const headers = { host: "127.0.0.1" };
      expect((await call({ ...serving, url: url.replace("127.0.0.1", outside) }, headers, "math.add")).status).not.toBe(
        200,
      );
    }
    expect(await hasRun()).toBe(false);
    const { token, id } = addKey();
    const auth = { type: "bearer", token };
    expect(await overTcp(tcp, { ...CALL, auth })).toContain('"3"');
    expect((await call(here, { authorization: `Bearer ${token}` }, "math.add")).status).toBe(200);
    expect(cli("key", "revoke", id).code).toBe(0);
    await expect.poll(() => overTcp(tcp, { ...CALL, auth }), { timeout: 10_000 }).toContain("UNAUTHENTICATED");
  });

  it("a module's server serves no caller without a credential at any of its workers, nor after the last key was revoked", async () => {
    const serving = await start(module(), "--host", "0.0.0.0", "--tcp-port", "0", "--ws-port", "0", "--workers", "2");
    const [, tcp, ws] = serving.urls as [string, string, string];
    const here = { ...serving, url: serving.url.replace("0.0.0.0", "127.0.0.1") };
    // Connections are not kept, so the workers take turns.
    const refused = async (auth?: object): Promise<void> => {
      for (let i = 0; i < 6; i++) {
        expect((await call(here, { connection: "close" }, "math.add")).status).toBe(401);
        expect(await overTcp(tcp, { ...CALL, auth })).toContain("UNAUTHENTICATED");
        expect(await overWebSocket(ws, { ...CALL, auth })).toContain("UNAUTHENTICATED");
      }
    };
    await refused();
    const { token, id } = addKey();
    const auth = { type: "bearer", token };
    await refused();
    expect(await hasRun()).toBe(false);
    await expect.poll(() => overTcp(tcp, { ...CALL, auth }), { timeout: 10_000 }).toContain('"3"');
    expect(cli("key", "revoke", id).code).toBe(0);
    await expect
      .poll(async () => (await Promise.all(Array.from({ length: 6 }, () => overTcp(tcp, { ...CALL, auth })))).join(), {
        timeout: 10_000,
      })
      .not.toContain('"3"');
    await refused(auth);
  });

  it("a module's server is not reached with keys of other applications, and ends local access with the first key [H4]", async () => {
    const serving = await start(module(), "--tcp-port", "0");
    expect((await call(serving, {}, "math.add")).status).toBe(200);
    expect(await overTcp(serving.urls[1] as string, CALL)).toContain('"3"');
    expect((await call(serving, { via: "1.1 proxy" }, "math.add")).status).toBe(401);
    expect(cli("app", "add", "other").code).toBe(0);
    const made = cli("key", "add", "other", "--name", "me", "--allow", "invoke(*)");
    const { token } = JSON.parse(made.stdout) as { token: string };
    await expect.poll(async () => (await call(serving, {}, "math.add")).status, { timeout: 5_000 }).toBe(401);
    expect(await overTcp(serving.urls[1] as string, CALL)).toContain("UNAUTHENTICATED");
    expect((await call(serving, { authorization: `Bearer ${token}` }, "math.add")).status).toBe(404);
  });
});

describe("the demonstration", () => {
  it("the demonstration asks for a credential on an address that is not loopback and stays the demonstration at the next start", async () => {
    const serving = await start("--host", "0.0.0.0");
    const here = { ...serving, url: serving.url.replace("0.0.0.0", "127.0.0.1") };
    expect((await call(here, {}, "math.add")).status).toBe(401);
    await stop();
    expect((await call(await start(), {}, "math.add")).status).toBe(200);
  });
});
