// All cores of one machine: one port, one store, a ledger for each process; one that is killed is replaced.

import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from "jose";
import { Agent, request } from "undici";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { connect } from "../../src/mcp/client/index.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { ownIssuer } from "./own-issuer.js";
import { childrenOf, portcullis, type Serving, serve } from "./serving.js";

let downstream: Counting;
let serving: Serving;
const dir = mkdtempSync(join(tmpdir(), "portcullis-workers-"));

beforeAll(async () => {
  downstream = await counting("workers");
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  await storage.applications.put("local", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  await storage.close();
  serving = await serve(["--workers", "2", "--log-level", "error"], { dir });
});
afterAll(async () => {
  await serving.stop();
  await downstream.close();
  rmSync(dir, { recursive: true, force: true });
});

/** There is a call in its ledger. */
function hasServed(worker: string): boolean {
  const folder = join(dir, "ledger", worker);
  const segments = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".ndjson")) : [];
  return segments.some((name) => readFileSync(join(folder, name), "utf8").includes("tools/call"));
}

/** On a connection that no other call shares: the next goes to the next worker. */
async function callAlone(text: string): Promise<void> {
  const dispatcher = new Agent();
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ text });
  const answer = await request(new URL("/tools/read", serving.url), { method: "POST", dispatcher, headers, body });
  await answer.body.dump();
  await dispatcher.close();
}

async function call(text: string): Promise<boolean> {
  const client = await connect(serving.url, { timeouts: { connectMs: 5_000, toolMs: 5_000 } }).catch(() => undefined);
  const answer = await client?.callTool("read", { text }).catch(() => undefined);
  await client?.close();
  return answer !== undefined && answer.isError !== true;
}

it.runIf(process.platform === "linux")(
  "workers share the calls, replace each other, and their ledgers add up",
  async () => {
    // The second begins when the first serves: until it has had a call of its own, the first is alone.
    for (let i = 0; i < 300 && !hasServed("worker-2"); i++) {
      await callAlone(`first-${i}`);
      await sleep(20);
    }
    expect(hasServed("worker-2")).toBe(true);
    for (let i = 0; i < 12; i++) expect(await call(`${i}`)).toBe(true);
    const workers = childrenOf(serving.child.pid as number);
    expect(workers.length).toBeGreaterThanOrEqual(2);
    const [victim] = workers;
    process.kill(victim as number, "SIGKILL");
    let good = 0;
    for (let i = 0; i < 30; i++) {
      if (await call(`after-${i}`)) good++;
      await sleep(50);
    }
    expect(good).toBeGreaterThan(20);
    for (let i = 0; i < 100 && childrenOf(serving.child.pid as number).length < workers.length; i++) await sleep(100);
    expect(childrenOf(serving.child.pid as number).length).toBe(workers.length);
    await sleep(300);
    const { code, stdout } = portcullis(["--json", "audit", "verify", join(dir, "ledger")]);
    const verified = JSON.parse(stdout) as { ok: boolean; ledgers: { path: string }[] };
    expect([code, verified.ok, verified.ledgers.length]).toEqual([0, true, 2]);
  },
);

it.runIf(process.platform === "linux")(
  "a worker that is killed again and again is restarted after a second at most",
  { timeout: 300_000 },
  async () => {
    const parent = serving.child.pid as number;
    const token = readFileSync(join(dir, "metrics.token"), "utf8").trim();
    const metrics = async (): Promise<string> => {
      const init = { headers: { authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(5_000) };
      return (await fetch(`${serving.admin}/metrics`, init)).text();
    };
    const long = { timeout: 60_000, interval: 200 };
    const bothServe = /^portcullis_workers\{[^}]*"serving"[^}]*\} 2$/m;
    for (let kills = 0; kills < 6; kills++) {
      await vi.waitFor(async () => expect(await metrics()).toMatch(bothServe), long);
      const before = serving.stderr().length;
      process.kill(childrenOf(parent).at(-1) as number, "SIGKILL");
      await vi.waitFor(() => expect(serving.stderr().slice(before)).toContain("started again in"), long);
    }
    const pauses = [...serving.stderr().matchAll(/started again in (\d+) ms/g)].map(([, ms]) => Number(ms));
    expect(Math.max(...pauses)).toBeLessThanOrEqual(1_000);
    // Until the last one serves again, its ledger is free for another gateway.
    await vi.waitFor(async () => expect(await metrics()).toMatch(bothServe), long);
  },
);

it("workers that cannot serve report the reason once and end", () => {
  const { code, stderr } = portcullis(["--dir", dir, "serve", "--port", "0", "--admin-port", "0", "--workers", "2"]);
  expect(code).toBe(1);
  expect(stderr.match(/is in use by process/g)).toHaveLength(1);
});

it.runIf(process.platform === "linux")(
  "one of many concurrent requests with the same proof of possession at all workers is accepted",
  async () => {
    const issuer = await ownIssuer();
    const resource = "https://gateway.example/mcp";
    const folder = mkdtempSync(join(tmpdir(), "portcullis-workers-"));
    cpSync(join(dir, "policy"), join(folder, "policy"), { recursive: true });
    const storage = await openStorage(`sqlite:${join(folder, "portcullis.db")}`);
    await storage.applications.put("local", {}, "test");
    await storage.close();
    const file = join(folder, "oauth.yaml");
    writeFileSync(file, JSON.stringify({ resource, issuers: [{ issuer: issuer.issuer, app: "local" }] }));
    const open = await serve(["--workers", "2", "--oauth", file, "--log-level", "error"], { dir: folder });
    try {
      const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
      const jwk = await exportJWK(publicKey);
      const now = Math.floor(Date.now() / 1_000);
      const cnf = { jkt: await calculateJwkThumbprint(jwk) };
      const claims = { iss: issuer.issuer, aud: resource, sub: "alice", client_id: "bot", exp: now + 600, cnf };
      const token = await issuer.sign({ ...claims, scope: "mcp" });
      const proof = (jti: string): Promise<string> =>
        new SignJWT({
          jti,
          htm: "POST",
          htu: resource,
          ath: createHash("sha256").update(token).digest("base64url"),
        })
          .setProtectedHeader({ typ: "dpop+jwt", alg: "ES256", jwk })
          .setIssuedAt()
          .sign(privateKey);
      const body = JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "tools/list",
        params: {
          _meta: {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
          },
        },
      });
      const send = async (dpop: string): Promise<number> => {
        const agent = new Agent({ pipelining: 0 });
        const { statusCode, body: answer } = await request(open.url, {
          method: "POST",
          dispatcher: agent,
          headers: {
            authorization: `DPoP ${token}`,
            dpop,
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/list",
          },
          body,
        });
        await answer.dump();
        await agent.close();
        return statusCode;
      };
      expect(await send(await proof("own"))).toBe(200);
      const same = await proof("same");
      const answers = await Promise.all(Array.from({ length: 16 }, () => send(same)));
      expect(answers.filter((status) => status === 200)).toHaveLength(1);
      expect(answers.filter((status) => status === 401)).toHaveLength(15);
    } finally {
      await open.stop();
      await issuer.close();
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
