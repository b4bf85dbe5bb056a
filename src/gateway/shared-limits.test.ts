import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Limit, Limits } from "../policy/index.js";
import { openStorage, type Storage } from "../storage/index.js";
import { sharedLimits } from "./shared-limits.js";

const alice = { app: "blog", agent: "alice", scope: [], via: "test" };
const tool = { name: "notes.read" };

describe("limits of two replicas on one store", () => {
  let directory: string;
  let storages: Storage[];
  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), "portcullis-limits-"));
    const open = () => openStorage(`sqlite:${join(directory, "store.db")}`);
    storages = [await open(), await open()];
  });
  afterEach(async () => {
    for (const storage of storages) await storage.close();
    rmSync(directory, { recursive: true });
  });
  const replicas = (limit: Limit): Limits[] =>
    storages.map(({ leases }) => new Limits([limit], undefined, sharedLimits(leases)));
  const isTaken = async (limits: Limits | undefined, bytes = 0): Promise<boolean> =>
    !("denied" in ((await limits?.take(alice, tool, bytes)) ?? { denied: true }));

  it("limits of two replicas on one store count bytes of arguments together [H12]", async () => {
    const [one, two] = replicas({ per: "agent", bytesPerMinute: 1_000_000 });
    let taken = 0;
    for (let i = 0; i < 10; i++) for (const each of [one, two]) if (await isTaken(each, 100_000)) taken++;
    // A replica may hold a lease of five percent.
    expect(taken).toBeGreaterThanOrEqual(9);
    expect(taken).toBeLessThanOrEqual(10);
  });

  it("limits of two replicas on one store deny a call at one replica when results of the other have used the bytes [H12]", async () => {
    const [one, two] = replicas({ per: "agent", bytesPerMinute: 1_000_000 });
    const slot = await one?.take(alice, tool, 10);
    if (!slot || "denied" in slot) throw new Error("the first call was denied");
    slot.release(5_000_000);
    await vi.waitFor(async () => expect(await isTaken(two, 10)).toBe(false), { timeout: 30_000, interval: 20 });
  });

  it("limits of two replicas on one store give up leased tokens after five seconds, whatever is asked for then", async () => {
    const clock = { now: 0 };
    let leases = 0;
    const lease = async () =>
      leases++ === 0 ? { granted: 50, retryAfterMs: 0 } : { granted: 0, retryAfterMs: 60_000 };
    const shared = sharedLimits({ lease, charge: async () => {} }, () => clock.now);
    const rate = { tokens: 1_000, periodMs: 60_000, burst: 1_000 };
    expect(await shared.take("k", 10, rate)).toBe(0);
    clock.now = 5_001;
    expect(await shared.take("k", 10, rate)).toBe(60_000);
  });

  it("limits of two replicas on one store let each of many replicas that use little have its part", async () => {
    const [storage] = storages as [Storage];
    const many = Array.from({ length: 60 }, () => sharedLimits(storage.leases));
    const rate = { tokens: 100, periodMs: 60_000, burst: 100 };
    const waits: number[] = [];
    for (const each of many) waits.push(await each.take("k", 1, rate));
    expect(waits.filter((ms) => ms > 0)).toEqual([]);
  });

  it("ask the store less and less often while much is used", async () => {
    let asked = 0;
    const { leases } = storages[0] as Storage;
    const lease: typeof leases.lease = (...args) => {
      asked++;
      return leases.lease(...args);
    };
    const shared = sharedLimits({ lease, charge: leases.charge });
    const rate = { tokens: 2_000, periodMs: 3_600_000, burst: 2_000 };
    let taken = 0;
    while ((await shared.take("k", 1, rate)) === 0) taken++;
    expect(taken).toBe(2_000);
    // 1, 2, 4, … 64, then a twentieth each; more where the machine is slow and a lease is over before it is used up.
    expect(asked).toBeLessThan(60);
  });

  it("limits of two replicas on one store let a call larger than the window run when the window is empty", async () => {
    const [one, two] = replicas({ per: "agent", bytesPerMinute: 1_000 });
    expect(await isTaken(one, 50_000)).toBe(true);
    expect(await isTaken(two, 10)).toBe(false);
  });

  it("limits of two replicas on one store deny none of the calls that arrive together while there are tokens [H12]", async () => {
    const [one, two] = replicas({ per: "agent", perMinute: 10 });
    const taken = await Promise.all(Array.from({ length: 16 }, (_, i) => isTaken(i % 2 ? one : two)));
    expect(taken.filter(Boolean)).toHaveLength(10);
  });
});
