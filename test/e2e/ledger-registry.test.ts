// Several ledgers, one account: the store knows every ledger and its last checkpoint, so that one which is missing,
// behind or another is found, by a start and by `audit verify`.

import { cpSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { LedgerRegistry } from "../../src/runtime/ledger.js";
import { type GatewayRuntime, startGateway } from "../../src/runtime/start.js";
import { openStorage } from "../../src/storage/index.js";
import { portcullis } from "./serving.js";

let dir: string;
const running: GatewayRuntime[] = [];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-registry-"));
});
afterEach(async () => {
  for (const runtime of running.splice(0)) await runtime.close().catch(() => {});
  rmSync(dir, { recursive: true, force: true });
});

async function start(more: { ledger?: string; replica?: string } = {}): Promise<GatewayRuntime> {
  const runtime = await startGateway({
    stateDir: dir,
    telemetry: { log: { level: "critical" } },
    identity: keysOrLocal({ localApp: "local", isLoopback: false }),
    ...more,
  });
  running.push(runtime);
  return runtime;
}

async function stop(): Promise<void> {
  for (const runtime of running.splice(0)) await runtime.close();
}

const verify = (...paths: string[]) => {
  const { code, stdout } = portcullis(["--json", "--dir", dir, "audit", "verify", ...paths]);
  return { code, report: JSON.parse(stdout) };
};

it("refuses a start with a ledger that was put back to an older state, until the operator gives it up [U9]", async () => {
  const { ledger } = await start();
  await stop();
  cpSync(join(dir, "ledger"), join(dir, "old"), { recursive: true });
  await start();
  await stop();
  expect(verify().code).toBe(0);
  rmSync(join(dir, "ledger"), { recursive: true });
  cpSync(join(dir, "old"), join(dir, "ledger"), { recursive: true });
  expect(verify()).toMatchObject({ code: 1, report: { problems: [{ kind: "truncated" }] } });
  await expect(start()).rejects.toMatchObject({ code: "LEDGER_REFUSED" });
  await expect(start()).rejects.toThrow(`portcullis audit forget ${ledger.origin}`);
  expect(portcullis(["--dir", dir, "audit", "forget", ledger.origin]).code).toBe(0);
  await start();
});

it("reports a registered ledger that is not among those that were checked [U9]", async () => {
  await start();
  const away = mkdtempSync(join(tmpdir(), "portcullis-away-"));
  try {
    const second = await start({ ledger: join(away, "ledger"), replica: "second" });
    await stop();
    expect(verify()).toMatchObject({ code: 1, report: { ok: false, missing: [{ origin: second.ledger.origin }] } });
    expect(verify(join(dir, "ledger"), join(away, "ledger"))).toMatchObject({
      code: 0,
      report: { ok: true, missing: [] },
    });
  } finally {
    rmSync(away, { recursive: true, force: true });
  }
});

it("reports a ledger that continues otherwise than the one that was registered [U9]", async () => {
  await start();
  await stop();
  cpSync(join(dir, "ledger"), join(dir, "fork"), { recursive: true });
  await start();
  await stop();
  // The copy is continued by itself, without the store, to more records than the registered one has.
  rmSync(join(dir, "ledger"), { recursive: true });
  cpSync(join(dir, "fork"), join(dir, "ledger"), { recursive: true });
  const kept = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  const [registered] = await kept.ledgers.list();
  await kept.ledgers.remove(registered?.origin as string, "test");
  await start();
  await stop();
  await kept.ledgers.remove(registered?.origin as string, "test");
  await kept.ledgers.put(registered as NonNullable<typeof registered>);
  await kept.close();
  expect(verify()).toMatchObject({ code: 1, report: { problems: [{ kind: "altered" }] } });
});

it("keeps open approvals when the data directory was moved together with its store", async () => {
  const { storage } = await start();
  const open = { id: "ch_moved", key: "k", app: "local", agent: "a", state: "pending", document: {}, payload: {} };
  await storage.challenges.open({ ...open, ttlMs: 600_000 }, { perApp: 10, perAgent: 10 });
  await stop();
  const moved = `${dir}-moved`;
  renameSync(dir, moved);
  dir = moved;
  const again = await start();
  expect((await again.storage.challenges.get("ch_moved"))?.state).toBe("pending");
});

it("records the checkpoints of the other ledgers in each ledger", async () => {
  const one = await start({ replica: "one" });
  const two = await start({ replica: "two", ledger: join(dir, "two") });
  const appended: unknown[] = [];
  const ledger = { ...one.ledger, origin: one.ledger.origin, dir: one.ledger.dir } as typeof one.ledger;
  ledger.append = async (entry) => {
    appended.push(entry);
    return { seq: 0 };
  };
  const registry = new LedgerRegistry(one.storage.ledgers, one.telemetry);
  await registry.anchor(ledger);
  await registry.anchor(ledger);
  expect(appended).toMatchObject([
    { kind: "admin", action: "ledger.anchor", detail: { checkpoints: [{ origin: two.ledger.origin }] } },
  ]);
});
