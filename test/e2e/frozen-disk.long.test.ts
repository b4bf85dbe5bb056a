// A gateway whose disk does not answer: `bindfs` is stopped under its ledger, or under its whole data directory. A run of
// its own, because other programs of the machine that look at every mount would wait for this one.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage } from "../../src/storage/index.js";
import { canMountFuse } from "../host/support/machine.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Serving, serve } from "./serving.js";

const FROZEN_S = 90;

let downstream: Counting;
beforeAll(async () => {
  downstream = await counting("ready");
});
afterAll(() => downstream.close());

interface Gateway extends Serving {
  readonly token: string;
}

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

const statusOf = async ({ admin }: Gateway, path: string): Promise<number> => (await ask(new URL(path, admin))).status;

it.skipIf(!canMountFuse()).each(["ledger", "data directory and store"])(
  "a gateway is not ready while the disk of its %s is frozen, and calls fail in bounded time [U13]",
  async (what) => {
    const [disk, mount] = [0, 1].map(() => mkdtempSync(join(tmpdir(), "portcullis-frozen-"))) as [string, string];
    const daemon = spawn("bindfs", ["-f", disk, mount], { stdio: "ignore" });
    // Whatever looks at mounts waits for a frozen one, this process too: the disk thaws by itself.
    const thaw = spawn("sh", ["-c", `sleep ${FROZEN_S}; kill -CONT ${daemon.pid}`], { stdio: "ignore" });
    await until(async () => readFileSync("/proc/self/mountinfo", "utf8").includes(mount), "mounted");
    const isAll = what !== "ledger";
    const dir = isAll ? join(mount, "data") : mkdtempSync(join(tmpdir(), "portcullis-thawed-"));
    const serving = await startIn(dir, "--ledger", join(mount, "ledger"));
    const authorization = `Bearer ${readFileSync(join(dir, "operator.token"), "utf8").trim()}`;
    const answersIn = async (url: URL): Promise<Awaited<ReturnType<typeof ask>>> => {
      const answer = await ask(url, { headers: { authorization } });
      expect(answer.status, `${url.pathname} answers while the disk is frozen`).not.toBe(0);
      return answer;
    };
    try {
      await until(async () => (await call(serving)).status === 200, "a first call");
      daemon.kill("SIGSTOP");
      const stuck = call(serving);
      const reason = isAll
        ? /the disk of the store .* has not answered for \d+ ms/
        : /a write to the ledger at .* has not returned/;
      await until(async () => reason.test((await answersIn(new URL("/readyz", serving.admin))).text), "frozen");
      expect(await stuck).toMatchObject({ status: 503, retryAfter: "1" });
      const { status, text } = await answersIn(new URL("/metrics", serving.admin));
      expect([status, /^portcullis_ledger_healthy 0$/m.test(text)]).toEqual([200, true]);
      daemon.kill("SIGCONT");
      await until(
        async () => (await call(serving)).status === 200 && (await statusOf(serving, "/readyz")) === 200,
        "ready again",
      );
    } finally {
      daemon.kill("SIGCONT");
      thaw.kill();
      await serving.stop();
      execFileSync("fusermount3", ["-u", "-z", mount]);
      daemon.kill("SIGKILL");
      for (const path of [disk, dir]) rmSync(path, { recursive: true, force: true });
    }
  },
);
