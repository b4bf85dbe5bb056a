// The disk that holds the ledger fills up while calls run: what cannot be recorded does not run, what was acknowledged is
// on record, and calls go on by themselves when there is room again.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { read, verify } from "../../src/ledger/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const disk = mkdtempSync(join(tmpdir(), "portcullis-disk-"));
const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]).status === 0;
const ledger = join(disk, "ledger");
const ballast = join(disk, "ballast");
let deployment: Deployment;
let downstream: Counting;

beforeAll(async () => {
  if (!mounted) return;
  writeFileSync(ballast, Buffer.alloc(2 * 1024 * 1024));
  downstream = await counting("disk");
  deployment = await deploy("permit (principal, action, resource);", { ledger });
  await deployment.put("team", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } });
});
afterAll(async () => {
  if (mounted) {
    await deployment.close();
    await downstream.close();
    execFileSync("umount", [disk]);
  }
  rmSync(disk, { recursive: true, force: true });
});

it("a full disk stops calls with a clear error, loses nothing, and calls run again when there is space", {
  timeout: 300_000,
}, async ({ skip }) => {
  if (!mounted) skip("a file system of one's own cannot be mounted here");
  const client = await deployment.client(await deployment.key("team", "worker"));
  await client.callTool("read", { text: "warm" });
  downstream.calls.length = 0;
  let good = 0;
  let refused: unknown;
  for (let i = 0; i < 20_000 && refused === undefined; i += 16) {
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, k) =>
        client.callTool("write", { text: `${i + k}` }).catch((error: Error) => error),
      ),
    );
    for (const answer of answers) {
      if (answer instanceof Error) refused = answer;
      else if (answer.isError !== true) good++;
    }
  }
  expect(String(refused)).toMatch(/ledger|record|disk/i);
  expect(good).toBeGreaterThan(10);
  // What was refused did not run.
  expect(downstream.calls.length).toBe(good);
  const before = downstream.calls.length;
  await client.callTool("write", { text: "still full" }).catch(() => {});
  expect(downstream.calls.length).toBe(before);

  rmSync(ballast);
  let isBack = false;
  for (let i = 0; i < 1_000 && !isBack; i++) {
    await sleep(100);
    isBack = await client.callTool("write", { text: `again-${i}` }).then(
      (answer) => answer.isError !== true,
      () => false,
    );
  }
  expect(isBack).toBe(true);
  good++;
  await client.close();
  await deployment.runtime.ledger.close();
  expect((await verify(ledger)).problems).toEqual([]);
  let decisions = 0;
  let outcomes = 0;
  for await (const { record } of read(ledger)) {
    if (record.kind === "decision" && record.tool === "write") decisions++;
    if (record.kind === "outcome" && record.tool === "write") outcomes++;
  }
  expect(decisions).toBeGreaterThanOrEqual(good);
  expect(outcomes).toBeGreaterThanOrEqual(good);
});
