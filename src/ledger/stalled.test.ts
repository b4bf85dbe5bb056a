import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { LedgerRecord } from "./entry.js";
import { decision, ORIGIN, outcome } from "./fixtures/entries.js";
import { FaultyDisk, type Operation } from "./fixtures/faulty-disk.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { type Ledger, openLedger } from "./ledger.js";
import { read } from "./read.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const DEADLINE_MS = 200;

async function until(isSo: () => boolean): Promise<void> {
  for (let i = 0; i < 1_000 && !isSo(); i++) await sleep(10);
  expect(isSo()).toBe(true);
}

async function callsIn(dir: string, kind: LedgerRecord["kind"]): Promise<string[]> {
  const calls: string[] = [];
  for await (const { record } of read(dir)) if (record.kind === kind && "call" in record) calls.push(record.call);
  return calls;
}

async function openStalling(): Promise<{ dir: string; disk: FaultyDisk; ledger: Ledger }> {
  const dir = scratch.fresh();
  const disk = new FaultyDisk();
  const options = { dir, origin: ORIGIN, disk, retryMs: 5, checkpointMs: 60_000, writeDeadlineMs: DEADLINE_MS };
  return { dir, disk, ledger: await openLedger(options) };
}

describe("a ledger on a disk that does not answer", () => {
  it.each<Operation>(["write", "sync", "isAt"])(
    "refuses waiting records after the deadline when a %s hangs, and continues the chain when it returns",
    async (operation) => {
      const { dir, disk, ledger } = await openStalling();
      await ledger.append(decision("before"));
      disk.fault = (done, name) => (done === operation && name.startsWith("seq-") ? "hang" : undefined);
      const first = ledger.append(decision("stalled")).catch((error: unknown) => error);
      await until(() => disk.held.length === 1);
      const second = ledger.append(decision("behind it")).catch((error: unknown) => error);
      ledger.appendSoon(outcome("before"));
      for (const refused of [await first, await second]) {
        expect(refused).toMatchObject({ code: "AUDIT_FAILURE", reason: "stalled" });
      }
      expect(ledger.status()).toMatchObject({ healthy: false });
      // Refused at once, and nothing else is sent to the disk while the write is under way.
      disk.fault = () => undefined;
      await sleep(50);
      await expect(ledger.append(decision("meanwhile"))).rejects.toMatchObject({ reason: "stalled" });
      expect(ledger.status()).toMatchObject({ healthy: false });
      disk.release();
      await until(() => ledger.status().healthy);
      await ledger.append(decision("after"));
      await ledger.close();
      expect(await callsIn(dir, "decision")).toEqual(["before", "after"]);
      expect(await callsIn(dir, "outcome")).toEqual(["before"]);
      expect((await verify(dir)).problems).toEqual([]);
    },
  );

  it("refuses records after the deadline when opening the next file hangs, and recovers [G5]", async () => {
    const dir = scratch.fresh();
    const disk = new FaultyDisk();
    const options = { dir, origin: ORIGIN, disk, retryMs: 5, writeDeadlineMs: DEADLINE_MS, maxSegmentBytes: 1 };
    const ledger = await openLedger({ ...options, checkpointMs: 60_000 });
    disk.fault = (done, name) => (done === "open" && name.startsWith("seq-") ? "hang" : undefined);
    await expect(ledger.append(decision("stalled"))).rejects.toMatchObject({ reason: "stalled" });
    disk.fault = () => undefined;
    disk.release();
    await until(() => ledger.status().healthy);
    await ledger.append(decision("after"));
    await ledger.close();
    expect(await callsIn(dir, "decision")).toEqual(["after"]);
    expect((await verify(dir)).problems).toEqual([]);
  });

  it("closes in bounded time and keeps the lock until the write returns [G5]", async () => {
    const { dir, disk, ledger } = await openStalling();
    disk.fault = (done, name) => (done === "write" && name.startsWith("seq-") ? "hang" : undefined);
    await expect(ledger.append(decision("stalled"))).rejects.toMatchObject({ reason: "stalled" });
    await ledger.close();
    await expect(openLedger({ dir, origin: ORIGIN, lockTimeoutMs: 20 })).rejects.toMatchObject({
      code: "LEDGER_LOCKED",
    });
    disk.release();
    const again = await openLedger({ dir, origin: ORIGIN, lockTimeoutMs: 20_000 });
    await again.append(decision("after"));
    await again.close();
    // The late write is on the disk in whole or not at all; its caller was refused, and its outcome is unknown.
    expect(await callsIn(dir, "decision")).toEqual(["stalled", "after"]);
    expect(await callsIn(dir, "outcome")).toEqual(["stalled"]);
    expect((await verify(dir)).problems).toEqual([]);
  });
});
