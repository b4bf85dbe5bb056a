// The keys of delegations are replaced while two replicas of one data directory run.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { mintDelegation, spendDelegation } from "../../src/policy/index.js";
import { type GatewayRuntime, startGateway } from "../../src/runtime/start.js";
import { delegationKeys, rotateDelegationKeys } from "../../src/runtime/workflow/keys.js";
import { loadWorkflow } from "../../src/runtime/workflow/load.js";
import { workflowInForce } from "../../src/runtime/workflow/serving.js";
import { portcullis } from "./serving.js";
import { notingServer, type Ran } from "./workflow-world.js";

const WORKFLOW = `
servers:
  files:
    tools:
      - { name: read, inputSchema: { type: object, properties: { path: { type: string } }, required: [path] } }
agents:
  boss: { servers: [files] }
`;
const base = mkdtempSync(join(tmpdir(), "portcullis-delegation-rotation-"));
const dir = join(base, "data");
const file = join(base, "workflow.yaml");
const replicas: GatewayRuntime[] = [];
const ran: Ran[] = [];

beforeAll(async () => {
  writeFileSync(file, WORKFLOW);
  for (const replica of ["a", "b"]) {
    const workflow = await workflowInForce({ file, stateDir: dir });
    const runtime = await startGateway({
      stateDir: dir,
      replica,
      inProcess: { app: "local", server: notingServer(await loadWorkflow(file), ran) },
      workflow,
      http: { host: "127.0.0.1", port: 0 },
      telemetry: { log: { level: "critical" } },
    });
    replicas.push(runtime);
  }
});
afterAll(async () => {
  for (const replica of replicas) await replica.close();
  rmSync(base, { recursive: true, force: true });
});

const mint = (): string => mintDelegation(delegationKeys(dir), { agent: "boss" });

/** Statuses of a call at each replica. */
function call(held: string, path: string): Promise<number[]> {
  return Promise.all(
    replicas.map(async ({ listeners }) => {
      const response = await fetch(new URL("/tools/files.read", listeners[0]?.url), {
        method: "POST",
        headers: { "content-type": "application/json", "portcullis-delegation": spendDelegation(held, {}) },
        body: JSON.stringify({ path }),
      });
      await response.text();
      return response.status;
    }),
  );
}

function rotate(...options: string[]): void {
  const { code, stderr } = portcullis(["--json", "--dir", dir, "rotate", "delegation-keys", ...options]);
  expect(code, stderr).toBe(0);
}

it("accepts tokens of the old and of the new keys at every replica after a rotation", async () => {
  const old = mint();
  expect(await call(old, "/before")).toEqual([200, 200]);
  rotate();
  const fresh = mint();
  await expect.poll(() => call(fresh, "/new")).toEqual([200, 200]);
  expect(await call(old, "/old")).toEqual([200, 200]);
  rotate();
  await expect.poll(() => call(mint(), "/newest")).toEqual([200, 200]);
  for (const token of [old, fresh]) expect(await call(token, "/twice")).toEqual([200, 200]);
});

it("refuses tokens of the old keys after the overlap, without effect", async () => {
  const old = mint();
  const began = Date.now();
  rotateDelegationKeys(dir, 2_000);
  await expect.poll(() => call(mint(), "/overlap")).toEqual([200, 200]);
  const during = await call(old, "/overlap");
  // On a busy machine the overlap may be over before it can be used.
  if (Date.now() - began < 2_000) expect(during).toEqual([200, 200]);
  await sleep(2_100);
  const before = ran.length;
  expect(await call(old, "/late")).toEqual([401, 401]);
  expect(ran.length).toBe(before);
  expect(await call(mint(), "/after")).toEqual([200, 200]);
});

it("refuses tokens of the old keys at once when the operator says so, without effect", async () => {
  const old = mint();
  rotate("--at-once");
  await expect.poll(() => call(mint(), "/new")).toEqual([200, 200]);
  const before = ran.length;
  expect(await call(old, "/leaked")).toEqual([401, 401]);
  expect(ran.length).toBe(before);
});
