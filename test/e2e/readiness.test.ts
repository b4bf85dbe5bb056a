// `/readyz` of real gateways, with one process and with workers, while what calls depend on fails.

import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Serving, serve } from "./serving.js";

let downstream: Counting;
let postgres: PostgresCluster;

beforeAll(async () => {
  downstream = await counting("ready");
  postgres = await startPostgres();
});
afterAll(async () => {
  await postgres.stop();
  await downstream.close();
});

interface Gateway extends Serving {
  readonly token: string;
}

const start = (storage: string, ...args: string[]): Promise<Gateway> =>
  startIn(mkdtempSync(join(tmpdir(), "portcullis-readiness-")), "--storage", storage, ...args);

async function startIn(dir: string, ...args: string[]): Promise<Gateway> {
  mkdirSync(join(dir, "policy"), { recursive: true, mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);\n");
  const storage = args[0] === "--storage" ? args[1] : undefined;
  const store = await openStorage(storage, { defaultFile: join(dir, "portcullis.db") });
  await store.applications.put("local", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const key = { app: "local", agent: "caller", name: "caller", permissions: ["invoke(*)"] };
  const { token } = await createKey(store.keys, key, "test");
  await store.close();
  return { ...(await serve(["--log-level", "critical", ...args], { dir })), token };
}

async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within 60 s: ${what}`);
    await sleep(50);
  }
}

/** On a connection of its own, so that any worker may get it; status 0 when there was no answer in time. */
async function ask(url: URL, options: object = {}): Promise<{ status: number; text: string; retryAfter?: string }> {
  const dispatcher = new Agent({ headersTimeout: 15_000 });
  try {
    const { statusCode, headers, body } = await request(url, { dispatcher, ...options });
    return { status: statusCode, text: await body.text(), retryAfter: headers["retry-after"] as string };
  } catch {
    return { status: 0, text: "" };
  } finally {
    await dispatcher.destroy();
  }
}

function call({ url, token }: Gateway): ReturnType<typeof ask> {
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
  return ask(new URL("/tools/read", url), { method: "POST", headers, body: "{}" });
}

/** The reason of a component that is not ready; undefined when it is. */
async function reasonOf({ admin, dir }: Gateway, component: string): Promise<string | undefined> {
  const authorization = `Bearer ${readFileSync(join(dir, "operator.token"), "utf8").trim()}`;
  const { status, text } = await ask(new URL("/readyz", admin), { headers: { authorization } });
  if (text === "") return undefined;
  const { components } = JSON.parse(text) as { components?: Record<string, { ready: boolean; reason?: string }> };
  const found = components?.[component];
  if (found?.ready !== false) return undefined;
  expect(status).toBe(503);
  return found.reason;
}

const statusOf = async ({ admin }: Gateway, path: string): Promise<number> => (await ask(new URL(path, admin))).status;

it.each([1, 2])(
  "readiness reports store, feed, ledger, pending policy and shutdown as not ready, with %i worker processes [U13]",
  async (workers) => {
    const serving = await start(await postgres.database(), "--workers", `${workers}`, "--shutdown-delay", "5");
    const isReady = async (): Promise<boolean> => (await statusOf(serving, "/readyz")) === 200;
    const reports = (component: string, reason: RegExp): Promise<void> =>
      until(async () => reason.test((await reasonOf(serving, component)) ?? ""), `${component}: ${reason.source}`);
    try {
      await until(async () => (await statusOf(serving, "/startupz")) === 200, "started");
      await until(async () => (await call(serving)).status === 200, "a first call");
      await until(isReady, "ready");

      postgres.pause();
      try {
        await reports("store", /store has not answered|store cannot be read/);
        await reports("feed", /changes in the store have not been read for \d+ ms/);
        expect(await statusOf(serving, "/livez")).toBe(200);
      } finally {
        postgres.resume();
      }
      await until(isReady, "ready after the store came back");

      const ledger = join(serving.dir, "ledger");
      renameSync(ledger, `${ledger}-away`);
      try {
        await until(async () => {
          await call(serving);
          return /ledger cannot be written/.test((await reasonOf(serving, "ledger")) ?? "");
        }, "the ledger is not writable");
        appendFileSync(
          join(serving.dir, "policy", "all.cedar"),
          '@id("new") forbid (principal, action == Action::"write", resource);\n',
        );
        await reports("records", /policy changes not recorded/);
      } finally {
        rmSync(ledger, { recursive: true, force: true });
        renameSync(`${ledger}-away`, ledger);
      }
      await until(async () => {
        await call(serving);
        return isReady();
      }, "ready after the ledger came back");

      serving.child.kill("SIGTERM");
      await reports("shutdown", /shutting down/);
      expect(await statusOf(serving, "/livez")).toBe(200);
    } finally {
      expect(await serving.stop()).toBe(0);
      rmSync(serving.dir, { recursive: true, force: true });
    }
  },
);
