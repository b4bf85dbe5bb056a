import { describe, expect, it } from "vitest";
import { decision, ORIGIN, outcome } from "./fixtures/entries.js";
import { FaultyDisk } from "./fixtures/faulty-disk.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { openLedger } from "./ledger.js";
import { read } from "./read.js";

const scratch = scratchDirectory();

async function kinds(dir: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { record } of read(dir)) found.push(record.kind);
  return found;
}

describe("outcomes", () => {
  it("outcomes are durable before the promise resolves with `flush` [U9]", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN, outcomes: "flush" });
    await ledger.append(decision("a"));
    const before = ledger.status().size;
    await ledger.appendOutcome(outcome("a"));
    expect(ledger.status().size).toBe(before + 1);
    expect((await kinds(dir)).at(-1)).toBe("outcome");
    await ledger.close();
  });

  it("outcomes have no promise to wait for with `lazy`, which is the default, and are written all the same", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN });
    await ledger.append(decision("a"));
    expect(ledger.appendOutcome(outcome("a"))).toBeUndefined();
    await ledger.close();
    expect((await kinds(dir)).at(-1)).toBe("outcome");
  });

  it("outcomes of calls that ran are kept with `flush` too while the disk takes no records, and written later", async () => {
    const dir = scratch.fresh();
    const disk = new FaultyDisk();
    const ledger = await openLedger({ dir, origin: ORIGIN, disk, outcomes: "flush", retryMs: 1 });
    await ledger.append(decision("a"));
    disk.fault = (operation) => (operation === "write" ? { code: "ENOSPC" } : undefined);
    await ledger.appendOutcome(outcome("a"));
    expect(ledger.status().healthy).toBe(false);
    disk.fault = () => undefined;
    await ledger.close();
    expect(await kinds(dir)).toContain("outcome");
  });
});
