// All cores of one machine: one port, one store, a ledger for each process; one that is killed is replaced.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { connect } from "../../src/client/index.js";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { portcullis, type Serving, serve } from "./serving.js";

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

/** Processes whose parent is this one. */
function childrenOf(pid: number): number[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      const fields = /^\d+$/.test(name) ? readFileSync(`/proc/${name}/stat`, "utf8").split(") ")[1] : undefined;
      return Number(fields?.split(" ")[1]) === pid ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

async function call(text: string): Promise<boolean> {
  // A connection of its own for each call, so that both processes get some.
  const client = await connect(serving.url, { timeouts: { connectMs: 5_000, toolMs: 5_000 } }).catch(() => undefined);
  const answer = await client?.callTool("read", { text }).catch(() => undefined);
  await client?.close();
  return answer !== undefined && answer.isError !== true;
}

it.runIf(process.platform === "linux")(
  "workers share the calls, replace each other, and their ledgers add up",
  async () => {
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
