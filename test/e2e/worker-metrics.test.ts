// One admin port for several workers: metrics are sums over all of them, and health is the health of all of them.

import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { childrenOf, type Serving, serve } from "./serving.js";

const WORKERS = 3;
const dir = mkdtempSync(join(tmpdir(), "portcullis-worker-metrics-"));
let downstream: Counting;
let serving: Serving;

beforeAll(async () => {
  downstream = await counting("workers");
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  await storage.applications.put("local", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  await storage.close();
  serving = await serve(["--workers", `${WORKERS}`, "--log-level", "critical"], { dir });
});
afterAll(async () => {
  await serving.stop();
  await downstream.close();
  rmSync(dir, { recursive: true, force: true });
});

async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within 60 s: ${what}`);
    await sleep(50);
  }
}

/** On a connection of its own, so that any worker may get it. */
async function get(path: string, token?: string): Promise<{ status: number; text: string }> {
  const dispatcher = new Agent({ headersTimeout: 10_000 });
  const headers =
    token === undefined ? {} : { authorization: `Bearer ${readFileSync(join(dir, token), "utf8").trim()}` };
  try {
    const { statusCode, body } = await request(new URL(path, serving.admin), { dispatcher, headers });
    return { status: statusCode, text: await body.text() };
  } catch {
    return { status: 0, text: "" };
  } finally {
    await dispatcher.close();
  }
}

async function call(): Promise<boolean> {
  const dispatcher = new Agent({ headersTimeout: 10_000 });
  const headers = { "content-type": "application/json" };
  const options = { method: "POST", dispatcher, headers, body: "{}" } as const;
  try {
    const { statusCode, body } = await request(new URL("/tools/read", serving.url), options);
    await body.dump();
    return statusCode === 200;
  } catch {
    return false;
  } finally {
    await dispatcher.close();
  }
}

/** The sum of all series of a metric whose labels contain this text. */
async function metric(name: string, labels = ""): Promise<number> {
  const { text } = await get("/metrics", "metrics.token");
  const lines = text.split("\n").filter((line) => line.match(/^\w+/)?.[0] === name && line.includes(labels));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

const calls = (): Promise<number> => metric("portcullis_calls_total", 'mcp_method_name="tools/call"');
const serves = (): Promise<number> => metric("portcullis_workers", 'portcullis_state="serving"');
const isReady = async (): Promise<boolean> => (await get("/readyz")).status === 200;

interface Readiness {
  readonly ready: boolean;
  readonly reasons: readonly string[];
  readonly components: Readonly<Record<string, { ready: boolean; reason?: string; warning?: string }>>;
}

const readiness = async (): Promise<Readiness> =>
  JSON.parse((await get("/readyz", "operator.token")).text || '{"components":{}}') as Readiness;

describe.runIf(process.platform === "linux")("the admin port of several workers", () => {
  it("the admin port of several workers adds the counters and histograms of all workers, whichever of them is asked [U13]", async () => {
    await until(async () => (await get("/startupz")).status === 200, "all workers started");
    expect(await serves()).toBe(WORKERS);
    for (let i = 0; i < 4 * WORKERS; i++) expect(await call()).toBe(true);
    for (let i = 0; i < WORKERS; i++) expect(await calls()).toBe(4 * WORKERS);
    const durations = await metric("mcp_server_operation_duration_seconds_count", 'mcp_method_name="tools/call"');
    expect(durations).toBe(4 * WORKERS);
    const { text } = await get("/metrics", "metrics.token");
    expect(text.match(/^process_uptime_seconds\{portcullis_worker="[123]"\} /gm)).toHaveLength(WORKERS);
  });

  it("the admin port of several workers names no tool, method or server without a credential", async () => {
    const { text } = await get("/metrics");
    expect(text).toContain(`portcullis_workers{portcullis_state="serving"} ${WORKERS}`);
    expect(text).not.toMatch(/gen_ai_tool_name|mcp_method_name|portcullis_app=/);
  });

  it("the admin port of several workers keeps what a killed worker had counted, and answers while it is replaced [U13]", async () => {
    const before = await calls();
    const [victim] = childrenOf(serving.child.pid as number);
    process.kill(victim as number, "SIGKILL");
    let made = 0;
    for (let i = 0; i < 20; i++) {
      if (await call()) made++;
      const seen = await calls();
      expect(seen === 0 || seen >= before).toBe(true);
    }
    await until(async () => (await serves()) === WORKERS, "the worker is replaced");
    expect(await calls()).toBeGreaterThanOrEqual(before + made);
    expect(await metric("portcullis_worker_restarts_total")).toBe(1);
    await until(isReady, "ready");
  });

  it("the admin port of several workers reports a worker that does not answer as neither ready nor alive", async () => {
    const [victim] = childrenOf(serving.child.pid as number);
    process.kill(victim as number, "SIGSTOP");
    try {
      // A connection that the stopped worker was given is not answered; the others are.
      await until(
        async () => /have not answered/.test((await readiness()).components.workers?.reason ?? ""),
        "blocked",
      );
      await until(async () => (await get("/readyz")).status === 503, "not ready");
      await until(async () => (await get("/livez")).status === 503, "not alive");
    } finally {
      process.kill(victim as number, "SIGCONT");
    }
    await until(async () => (await get("/livez")).status === 200, "alive again");
    await until(isReady, "ready again");
  });

  it("the admin port of several workers is not ready while one worker cannot write its ledger, and says which", async () => {
    const [ledger, away] = [join(dir, "ledger", "worker-2"), join(dir, "away")];
    renameSync(ledger, away);
    try {
      await until(async () => {
        await call();
        return (await get("/readyz")).status === 503;
      }, "not ready");
      expect((await readiness()).components.ledger).toMatchObject({
        ready: false,
        reason: expect.stringMatching(/^worker 2: the ledger/) as string,
      });
    } finally {
      renameSync(away, ledger);
    }
    await until(async () => (await call()) && (await isReady()), "ready again");
  });
});
